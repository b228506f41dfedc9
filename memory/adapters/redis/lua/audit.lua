-- What is derived from records, compared with them: each stands in just the indexes that its value tells, and indexes name nothing else.
--
-- What expired leaves members behind that are taken out in passing: these are no problem. With REPAIR what differs is set right.

local REPAIR = take() == '1'

-- The indexes that are wrong about what stands at an address, by their letters; nothing where nothing stands there, or it cannot be read.
local function record()
  local address, wrong = take_address(), ''
  local stored = parsed(value_at(address))
  if not stored or stored.broken then return '' end
  local function expect(letter, is_right, ...)
    if is_right then return end
    wrong = wrong .. letter
    if REPAIR then call(...) end
  end
  local start, partition = keys_of(address.bucket), stored.partition
  for _, pair in ipairs(members_of(address, stored)) do
    expect(sub(pair[1], #start + 1, #start + 1), call('ZSCORE', pair[1], pair[2]), 'ZADD', pair[1], 0, pair[2])
  end
  if partition == NOWHERE then return wrong end
  if stored.kind == 'm' then
    expect('m', call('SISMEMBER', start .. 'm:' .. partition, address.key) == 1, 'SADD', start .. 'm:' .. partition, address.key)
    return wrong
  end
  if REPAIR and string.find(wrong, 't') then tell(address.bucket, address.collection, partition, {address.id}) end
  local index, collections, forever = partition_index(address, partition), start .. 's:' .. partition, call('PTTL', address.key) == -1
  expect('s', call('SISMEMBER', collections, address.collection) == 1, 'SADD', collections, address.collection)
  for letter, key in pairs({t = index, s = collections}) do -- it would be gone before what it names
    expect(letter, not (forever and call('PTTL', key) >= 0), 'PERSIST', key)
  end
  if #named(address.bucket, 'e', address.tenant, partition) == 0 then
    local read, said = pcall(cjson.decode, string.match(sub(stored.value, stored.finish + 1), '^[^\n]*'))
    expect('e', false, 'ZADD', start .. 'e', 0, address.tenant .. partition .. cjson.encode(read and {said[1], said[3]} or {}))
  end
  return wrong
end

-- A portion of an index: where the next one begins, and how many members name something that is not there as they say.
local function members()
  local bucket, index, of, from, count, wrong = take(), take(), take(), take(), tonumber(take()), 0
  local key = index == 'd' and keys_of(bucket) .. 'd' or index_key(bucket, index, of)
  local found = call('ZRANGE', key, from, '+', 'BYLEX', 'LIMIT', 0, count)
  for _, member in ipairs(found) do
    local address = address_in(bucket, index, string.match(of, '^[^:]*'), member)
    local value = value_at(address)
    if not value or not belongs(address, key, member, value) then
      if value then wrong = wrong + 1 end
      if REPAIR then
        call('ZREM', key, member)
        if index == 't' then tell(bucket, address.collection, sub(of, -32), {address.id}) end
      end
    end
  end
  return framed(#found == count and '(' .. found[#found] or '') .. framed(tostring(wrong))
end

local LOOKS, answers = {record = record, members = members}, {}
while at < #ARGV do answers[#answers + 1] = framed(LOOKS[take()]()) end
return table.concat(answers)
