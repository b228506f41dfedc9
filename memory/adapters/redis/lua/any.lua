-- Tells which indexes have a member up to a time, bucket by bucket. It is called often,
-- and usually there is none.

local indexes, answers = {}, {}
for i = 1, tonumber(take()) do indexes[i] = {name = take(), to = take()} end

while at < #ARGV do
  local bucket, said = take(), ''
  for _, index in ipairs(indexes) do
    local key = keys_of(bucket) .. index.name
    local found = call('ZRANGE', key, '-', index.to, 'BYLEX', 'LIMIT', 0, 1)
    said = said .. ((#found > 0 or not surely_missing(bucket, key)) and '1' or '0')
  end
  answers[#answers + 1] = framed(said)
end
return table.concat(answers)
