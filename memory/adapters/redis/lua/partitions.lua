-- Lists partitions, finds those that only have a generation, and forgets them.

-- Whether the partition has a record. Collections whose records have all expired are
-- removed from the list in passing.
local function has_records(bucket, tenant, partition)
  local found = false
  for _, collection in ipairs(call('SMEMBERS', index_key(bucket, 's', partition))) do
    found = has_any(address_at(bucket, collection, tenant, ''), partition) or found
  end
  return found
end

local function has_marks(bucket, partition)
  local marks = index_key(bucket, 'm', partition)
  for _, key in ipairs(call('SMEMBERS', marks)) do
    if call('EXISTS', key) == 1 then return true end
    call('SREM', marks, key)
  end
  return false
end

-- The names in a registry from `from` on, each with the result of `judged` if there is
-- one, and where the next part begins.
local function portion(judged)
  local bucket, registry, from, to, count = take(), take(), take(), take(), tonumber(take())
  local names = call('ZRANGE', keys_of(bucket) .. registry, from, to, 'BYLEX', 'LIMIT', 0, count)
  local said = {framed(#names == count and '(' .. names[#names] or '')}
  for _, name in ipairs(names) do
    local generation = judged(bucket, registry, sub(name, 1, 32), sub(name, 33, 64))
    if generation then said[#said + 1] = framed(format('%016.0f', generation) .. name) end
  end
  return table.concat(said)
end

local function idle()
  return portion(function(bucket, _, tenant, partition)
    if has_records(bucket, tenant, partition) or has_marks(bucket, partition) then return nil end
    return generation_of(bucket, partition)
  end)
end

-- Partitions that are in the registry of records (e) and in that of generations (i) are
-- reported by the second.
local function standing()
  return portion(function(bucket, registry, tenant, partition)
    local generation = generation_of(bucket, partition)
    if registry == 'i' then return generation end
    return has_records(bucket, tenant, partition) and generation == 0 and 0 or nil
  end)
end

local function forget()
  local bucket, tenant, partition, expected = take(), take(), take(), tonumber(take())
  if generation_of(bucket, partition) ~= expected or expected == 0 then return '0' end
  if has_records(bucket, tenant, partition) or has_marks(bucket, partition) then return '0' end
  unnamed(bucket, 'i', tenant, partition)
  call('DEL', index_key(bucket, 'p', partition))
  return '1'
end

local ASKED, answers = {idle = idle, standing = standing, forget = forget}, {}
while at < #ARGV do answers[#answers + 1] = framed(ASKED[take()]()) end
return table.concat(answers)
