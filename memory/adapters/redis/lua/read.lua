-- Pages of an index with the values its members lead to, and the registry of partitions.
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

-- What a member of an index says: the id, the tenant, and where records are listed (creation, then partition).
local function told(index, member, tenant, partition)
  if index == 't' then return sub(member, 17), tenant, sub(member, 1, 16) .. partition end
  if index == 'a' then return sub(member, 1, -81), sub(member, -80, -49), sub(member, -48) end
  return sub(member, 1, -33), sub(member, -32), nil
end

-- Takes a member that leads nowhere, or elsewhere, out of its index, and of the other one where it stands too.
local function drop(bucket, collection, index, key, member, tenant, partition)
  local id, of, listed = told(index, member, tenant, partition)
  if listed then
    unlist(bucket, collection, of, id, sub(listed, 17), sub(listed, 1, 16))
  else
    call('ZREM', key, member)
  end
end

-- Whether the value stands where the member says. What cannot be read is not judged: its reader has to learn of it.
local function belongs(index, value, listed)
  local kind = string.byte(value, 18)
  local right
  if listed then
    right = (kind == 114 and sub(value, 59, 106) == listed) or kind == 99
  elseif index == 'g' then
    right = kind == 109 or kind == 116
  else
    right = string.byte(value, 20) == 111
  end
  return right or not sealed(value)
end

local function page()
  local bucket, collection, index, tenant, partition = take(), take(), take(), take(), take()
  local backwards, bound, count = take() == '1', take(), tonumber(take())
  local key = index_key(bucket, index, collection, index == 't' and partition)
  local members
  if backwards then
    members = call('ZRANGE', key, bound, '-', 'BYLEX', 'REV', 'LIMIT', 0, count)
  else
    members = call('ZRANGE', key, bound, '+', 'BYLEX', 'LIMIT', 0, count)
  end
  local looked = #members
  local start, keys, places = keys_of(bucket) .. 'r:' .. collection .. ':', {}, {}
  for i = 1, looked do
    local id, of, listed = told(index, members[i], tenant, partition)
    keys[i], places[i] = start .. of .. ':' .. token(id), listed
  end
  local values = looked > 0 and call('MGET', unpack(keys)) or {}
  local size, more = 0, looked == count
  local elsewhere = index == 't' and call('HGET', keys_of(bucket) .. 'p:' .. partition, 'b') or ''
  local flag = last + 1
  say('')
  local said = 1 + say(framed(elsewhere))
  for i = 1, looked do
    if size > BUDGET then
      more = true
      break
    end
    local member, value = members[i], values[i]
    if value and belongs(index, value, places[i]) then
      said = said + say(struct.pack('>I4I4', #member, #value)) + say(member) + say(value)
      size = size + #value
    else
      drop(bucket, collection, index, key, member, tenant, partition)
    end
  end
  pieces[flag] = more and '1' or '0'
  return said
end

-- The partitions of a tenant that have records in this bucket.
local function partitions()
  local bucket, collection, tenant = take(), take(), take()
  local registry, kept = index_key(bucket, 'n', collection, tenant), {}
  for _, partition in ipairs(call('SMEMBERS', registry)) do
    if call('EXISTS', index_key(bucket, 't', collection, partition)) == 1 then
      kept[#kept + 1] = partition
    else
      call('SREM', registry, partition)
    end
  end
  return say(table.concat(kept))
end

local READS = {page = page, partitions = partitions}
while at < #ARGV do
  local size = last + 1
  say('')
  pieces[size] = struct.pack('>I4', READS[take()]())
end
return table.concat(pieces)
