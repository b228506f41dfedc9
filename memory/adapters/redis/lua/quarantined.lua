-- Counts the quarantined records of some collections, bucket by bucket.

local collections, answers = {}, {}
for i = 1, tonumber(take()) do collections[i] = take() end

while at < #ARGV do
  local bucket, found = take(), 0
  for _, collection in ipairs(collections) do
    local key = index_key(bucket, 'q', collection)
    local count = call('HLEN', key)
    if count == 0 then surely_missing(bucket, key) end
    found = found + count
  end
  answers[#answers + 1] = framed(format('%.0f', found))
end
return table.concat(answers)
