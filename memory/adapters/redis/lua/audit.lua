-- What is derived from records, compared with them: each stands in just the indexes that its value tells, and indexes name nothing else.
--
-- What expired leaves members behind that are taken out in passing: these are no problem. With REPAIR what differs is set right.

local REPAIR = take() == '1'

-- Sees to it that the member is in the set or is not; whether it was as it should be.
local function right(key, member, wanted, is_sorted)
  local there
  if is_sorted then there = call('ZSCORE', key, member) ~= false else there = call('SISMEMBER', key, member) == 1 end
  if there == wanted then return true end
  if REPAIR then
    if is_sorted then
      if wanted then call('ZADD', key, 0, member) else call('ZREM', key, member) end
    else
      call(wanted and 'SADD' or 'SREM', key, member)
    end
  end
  return false
end

-- The indexes that are wrong about what stands in a place, by their letters; nothing where nothing stands there, or it cannot be read.
local function record()
  local bucket, collection, tenant, id = take(), take(), take(), take()
  local key, wrong = record_key(bucket, collection, tenant, id), ''
  local value = call('GET', key)
  if not value or not sealed(value) then return '' end
  local kind, owing, created, partition = sub(value, 18, 18), sub(value, 20, 20) == 'o', sub(value, 59, 74), sub(value, 75, 106)
  local function expect(letter, index, member, wanted, is_sorted)
    if not right(index, member, wanted, is_sorted) then wrong = wrong .. letter end
  end
  if partition ~= NOWHERE and (kind == 'r' or kind == 'c') then
    local index = index_key(bucket, 't', collection, partition)
    expect('t', index, created .. id, true, true)
    expect('a', index_key(bucket, 'a', collection), id .. tenant .. created .. partition, true, true)
    expect('n', index_key(bucket, 'n', collection, tenant), partition, true, false)
    if call('PTTL', key) == -1 and call('PTTL', index) >= 0 then -- the index would be gone before what it names
      wrong = wrong .. 't'
      if REPAIR then call('PERSIST', index) end
    end
  end
  expect('g', index_key(bucket, 'g', collection), id .. tenant, kind == 'm' or kind == 't', true)
  expect('o', index_key(bucket, 'o', collection), id .. tenant, owing, true)
  if kind == 'm' and partition ~= NOWHERE then expect('m', keys_of(bucket) .. 'm:' .. partition, key, true, false) end
  return wrong
end

-- A portion of an index over all records: where the next one begins, and how many members name something that is not there as they say.
local function members()
  local bucket, collection, index, bound, count = take(), take(), take(), take(), tonumber(take())
  local key, wrong = index_key(bucket, index, collection), 0
  local found = call('ZRANGE', key, bound, '+', 'BYLEX', 'LIMIT', 0, count)
  for _, member in ipairs(found) do
    local id, tenant, listed = sub(member, 1, -33), sub(member, -32), nil
    if index == 'a' then id, tenant, listed = sub(member, 1, -81), sub(member, -80, -49), sub(member, -48) end
    local value = call('GET', record_key(bucket, collection, tenant, id))
    local stands = value and sealed(value)
    if value and stands then
      local kind = sub(value, 18, 18)
      if listed then
        stands = (kind == 'r' or kind == 'c') and sub(value, 59, 106) == listed
      elseif index == 'g' then
        stands = kind == 'm' or kind == 't'
      else
        stands = sub(value, 20, 20) == 'o'
      end
      if not stands then wrong = wrong + 1 end
    end
    if REPAIR and not stands and not (value and not sealed(value)) then
      if listed then unlist(bucket, collection, tenant, id, sub(listed, 17), sub(listed, 1, 16)) else call('ZREM', key, member) end
    end
  end
  return framed(#found == count and '(' .. found[#found] or '') .. framed(tostring(wrong))
end

-- A portion of a partition's index: every member of it is one of the index over all records.
local function partition()
  local bucket, collection, of, bound, count = take(), take(), take(), take(), tonumber(take())
  local key, wrong, all = index_key(bucket, 't', collection, of), 0, index_key(bucket, 'a', collection)
  local found = call('ZRANGE', key, bound, '+', 'BYLEX', 'LIMIT', 0, count)
  for _, member in ipairs(found) do
    local created, id, known = sub(member, 1, 16), sub(member, 17), false
    for _, one in ipairs(call('ZRANGE', all, '[' .. id, '(' .. id .. '~', 'BYLEX')) do
      known = known or (#one == #id + 80 and sub(one, -48) == created .. of)
    end
    if not known then
      wrong = wrong + 1
      if REPAIR then call('ZREM', key, member) end
    end
  end
  return framed(#found == count and '(' .. found[#found] or '') .. framed(tostring(wrong))
end

local LOOKS, answers = {record = record, members = members, partition = partition}, {}
while at < #ARGV do answers[#answers + 1] = framed(LOOKS[take()]()) end
return table.concat(answers)
