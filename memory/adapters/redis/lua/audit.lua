-- Compares indexes with the records: each record is in exactly the indexes that its
-- value determines, and indexes have no other members.
--
-- Expired records leave members behind that are removed in passing; these are no
-- problem. With REPAIR, differences are repaired.

local REPAIR = take() == '1'

-- Returns the letters of the indexes that are wrong about the value at an address;
-- nothing if there is no value or it is unreadable.
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
  for letter, key in pairs({t = index, s = collections}) do -- the index would expire before the records that it names
    expect(letter, not (forever and call('PTTL', key) >= 0), 'PERSIST', key)
  end
  if #named(address.bucket, 'e', address.tenant, partition) == 0 then
    local read, said = pcall(cjson.decode, string.match(sub(stored.value, stored.finish + 1), '^[^\n]*'))
    expect('e', false, 'ZADD', start .. 'e', 0, address.tenant .. partition .. cjson.encode(read and {said[1], said[3]} or {}))
  end
  return wrong
end

-- Checks a part of an index. Returns where the next part begins, and how many members
-- name a value that does not match.
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
