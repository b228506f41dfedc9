-- Partitions that nothing is left of: which there are, and forgetting what is kept of them.

local ONE_SERVER, COLLECTIONS = take() == '1', {}
for i = 1, tonumber(take()) do COLLECTIONS[i] = take() end

-- Whether marks of the partition stand here. Those that were forgotten by themselves leave the list while passing.
local function is_marked(bucket, partition)
  local marks = keys_of(bucket) .. 'm:' .. partition
  for _, key in ipairs(call('SMEMBERS', marks)) do
    if call('EXISTS', key) == 1 then return true end
    call('SREM', marks, key)
  end
  return false
end

-- The buckets in which something of the partition may be, and its generation; nil where something stands in one of them.
local function emptied(bucket, partition)
  local buckets = {bucket}
  local kept = call('HMGET', keys_of(bucket) .. 'p:' .. partition, 'g', 'b')
  local generation, elsewhere = tonumber(kept[1] or '0'), kept[2] or ''
  if elsewhere ~= '' and not ONE_SERVER then return nil end -- they are on other servers, which cannot be asked in this step
  for at = 1, #elsewhere, 2 do buckets[#buckets + 1] = sub(elsewhere, at, at + 1) end
  for _, here in ipairs(buckets) do
    if is_marked(here, partition) then return nil end
    for _, collection in ipairs(COLLECTIONS) do
      if call('EXISTS', index_key(here, 't', collection, partition)) == 1 then return nil end
    end
  end
  return buckets, generation
end

local function idle()
  local bucket, cursor, count = take(), take(), take()
  local answer = call('HSCAN', keys_of(bucket) .. 'e', cursor, 'COUNT', count)
  local said = {framed(answer[1])}
  for i = 1, #answer[2], 2 do
    local buckets, generation = emptied(bucket, answer[2][i])
    if buckets then said[#said + 1] = framed(format('%16.0f', generation) .. answer[2][i + 1]) end
  end
  return table.concat(said)
end

local function forget()
  local bucket, partition, expected = take(), take(), tonumber(take())
  local buckets, generation = emptied(bucket, partition)
  if not buckets or generation ~= expected then return '0' end
  local known = call('HDEL', keys_of(bucket) .. 'e', partition)
  for _, here in ipairs(buckets) do call('DEL', keys_of(here) .. 'p:' .. partition) end
  return tostring(known)
end

local UPKEEP, answers = {idle = idle, forget = forget}, {}
while at < #ARGV do answers[#answers + 1] = framed(UPKEEP[take()]()) end
return table.concat(answers)
