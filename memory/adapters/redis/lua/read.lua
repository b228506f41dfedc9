-- Pages of an index with the values its members lead to, the partitions of a tenant, and single values and generations.
--
-- What an index names and is no longer there (it expired) or stands elsewhere is taken out of the index while passing.

local BUDGET = tonumber(take())

-- The answers in pieces, put together once at the end: every copy of a long text keeps the server from other work.
local pieces, last = {}, 0

local function say(piece)
  last = last + 1
  pieces[last] = piece
  return #piece
end

-- Takes a member that leads nowhere, or elsewhere, out of its index; a record's out of both.
local function drop(address, index, key, member, partition)
  call('ZREM', key, member)
  if index == 'a' then
    partition = sub(member, 85)
    call('ZREM', partition_index(address, partition), sub(member, 69, 84) .. sub(member, 1, 68))
  elseif index == 't' then
    call('ZREM', index_key(address.bucket, 'a', address.collection), sub(member, 17) .. sub(member, 1, 16) .. partition)
  else
    return
  end
  has_any(address, partition)
end

-- Whether a record stands where the member says: what most members lead to, told without looking at the rest of the value.
local function is_plain(index, member, partition, value)
  local listed = index == 't' and sub(member, 1, 16) .. partition or index == 'a' and sub(member, 69)
  return listed and sub(value, 18, 18) == 'r' and sub(value, 59, 106) == listed
end

-- Members from `from` to `to`, which says the direction too.
local function page()
  local bucket, collection, index, partition, from, to, count = take(), take(), take(), take(), take(), take(), tonumber(take())
  local key = index == 'd' and keys_of(bucket) .. 'd' or index_key(bucket, index, index == 't' and collection .. ':' .. partition or collection)
  local members
  if to == '-' then
    members = call('ZRANGE', key, from, to, 'BYLEX', 'REV', 'LIMIT', 0, count)
  else
    members = call('ZRANGE', key, from, to, 'BYLEX', 'LIMIT', 0, count)
  end
  local looked, keys, of_one = #members, {}, index == 't' or index == 'a'
  local start, who = index_key(bucket, 'r', collection .. ':'), index == 'a' and 1 or 17
  for i = 1, looked do
    local member = members[i]
    keys[i] = of_one and start .. sub(member, who + 36, who + 67) .. ':' .. sub(member, who, who + 35) or address_in(bucket, index, collection, member).key
  end
  keys[looked + 1], keys[looked + 2] = key, keys_of(bucket) .. 'e' -- as in `surely_missing`
  local values = call('MGET', unpack(keys))
  local size, more, flag, said = 0, looked == count, last + 1, 1
  say('')
  for i = 1, looked do
    if size > BUDGET then
      more = true
      break
    end
    local member, value = members[i], values[i]
    if value and (is_plain(index, member, partition, value) or belongs(address_in(bucket, index, collection, member), key, member, value)) then
      said = said + say(struct.pack('>I4I4', #member, #value)) + say(member) + say(value)
      size = size + #value
    else
      drop(address_in(bucket, index, collection, member), index, key, member, partition)
    end
  end
  pieces[flag] = more and '1' or '0'
  return said
end

-- The partitions of a tenant that have records of the collection in this bucket.
local function partitions()
  local bucket, collection, tenant = take(), take(), take()
  local said = 0
  surely_missing(bucket, keys_of(bucket) .. 'i')
  for _, name in ipairs(call('ZRANGE', keys_of(bucket) .. 'e', '[' .. tenant, '(' .. tenant .. '~', 'BYLEX')) do
    local partition = sub(name, 33, 64)
    if has_any(address_at(bucket, collection, tenant, ''), partition) then said = said + say(partition) end
  end
  return said
end

local function value()
  local stored = value_at(take_address())
  return stored and say('=' .. stored) or 0
end

local function generation()
  return say(format('%.0f', generation_of(take(), take())))
end

local READS = {page = page, partitions = partitions, value = value, generation = generation}
while at < #ARGV do
  local size = last + 1
  say('')
  pieces[size] = struct.pack('>I4', READS[take()]())
end
return table.concat(pieces)
