-- Reads pages of an index with their values, the partitions of a tenant, and single
-- values and generations.
--
-- Members whose value has expired or moved are removed from the index in passing.

local BUDGET = tonumber(take())

-- Parts of the answer, joined once at the end: every copy of a long text keeps the
-- server from other work.
local pieces, last = {}, 0

local function say(piece)
  last = last + 1
  pieces[last] = piece
  return #piece
end

-- Removes a member without a matching value from its index; a record's from both
-- indexes.
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
  tell(address.bucket, address.collection, partition, {address.id})
end

-- Whether a record is where the member says. This is the usual case, decided without
-- the rest of the value.
local function is_plain(index, member, partition, value)
  local listed = index == 't' and sub(member, 1, 16) .. partition or index == 'a' and sub(member, 69)
  return listed and sub(value, 18, 18) == 'r' and sub(value, 59, 106) == listed
end

-- Members from `from` to `to`. If `to` begins with a minus, the direction is backwards;
-- the bound follows it, if there is one.
local function members_between(bucket, collection, index, partition, from, to, count)
  local key = index == 'd' and keys_of(bucket) .. 'd' or index_key(bucket, index, partition ~= '' and collection .. ':' .. partition or collection)
  local members
  if sub(to, 1, 1) == '-' then
    members = call('ZRANGE', key, from, #to > 1 and sub(to, 2) or '-', 'BYLEX', 'REV', 'LIMIT', 0, count)
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

local function page()
  return members_between(take(), take(), take(), take(), take(), take(), tonumber(take()))
end

-- The values under these ids in the partition, in the form of a page, empty for missing
-- ones; nil if they are too many at once.
local function changed(bucket, collection, tenant, partition, ids)
  if #ids == 0 then return {} end
  local keys, entries, size = {}, {}, 0
  for i = 1, #ids do keys[i] = address_at(bucket, collection, tenant, ids[i]).key end
  local values = call('MGET', unpack(keys))
  for i = 1, #ids do
    local value = values[i] or surely_missing(bucket, keys[i]) and ''
    local stored = parsed(value ~= '' and value or nil)
    local stands = stored and (stored.kind == 'c' or (stored.kind == 'r' and stored.partition == partition))
    local member = (stands and not stored.broken and stored.created or AT_ONCE) .. ids[i] .. tenant
    value = stands and value or ''
    size = size + #value
    if size > BUDGET then return nil end
    entries[i] = struct.pack('>I4I4', #member, #value) .. member .. value
  end
  return entries
end

-- A partition's changes since a stamp (`tell`). The answer begins with '=' if the
-- caller's data is current, or '+' before the values of the changed ids. Otherwise it
-- begins with '*' before the first page of all. The stamp of the data follows the
-- letter, zeros if there is none.
local function since()
  local bucket, collection, tenant, partition, stamp, count = take(), take(), take(), take(), take(), tonumber(take())
  local newest, ids = told_since(bucket, collection, partition, stamp)
  local entries = ids and changed(bucket, collection, tenant, partition, ids)
  if entries then return say((#entries == 0 and newest == stamp and '=' or '+') .. newest .. table.concat(entries)) end
  local head = last + 1
  say('')
  local said = members_between(bucket, collection, 't', partition, '-', '+', count)
  newest = told_since(bucket, collection, partition, '')
  if not newest then
    tell(bucket, collection, partition, {})
    newest = told_since(bucket, collection, partition, '')
  end
  pieces[head] = '*' .. (newest or string.rep('0', STAMP))
  return said + 1 + STAMP
end

-- The partitions of a tenant with records of the collection in this bucket.
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

local READS = {page = page, since = since, partitions = partitions, value = value, generation = generation}
while at < #ARGV do
  local size = last + 1
  say('')
  pieces[size] = struct.pack('>I4', READS[take()]())
end
return table.concat(pieces)
