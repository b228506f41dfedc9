-- What both scripts know: the names of keys and the layout of values. `names.py` and `packing.py` say the same in Python.
--
-- Every key of a bucket carries the bucket's hash tag, so a script that is given one bucket touches one slot, whatever else it finds out.
-- ARGV[1] is the prefix of all keys; each script then takes its arguments in order.

local PREFIX, at = ARGV[1], 1
local HEAD, NOWHERE, NEVER = 153, string.rep('0', 32), string.rep('-', 15)
local sub, format, call = string.sub, string.format, redis.call

local function take()
  at = at + 1
  return ARGV[at]
end

local function framed(text)
  return struct.pack('>I4', #text) .. text
end

-- The beginning of every key of a bucket.
local function keys_of(bucket)
  return '{' .. PREFIX .. ':' .. bucket .. '}:'
end

local function hex(letter)
  return format('%02x', string.byte(letter))
end

-- An id as indexes have it ends in NUL and a letter: p for one that may stand in a key as it is, h for one that stands there in hexadecimal.
local function token(id)
  if string.byte(id, -1) == 112 then return sub(id, 1, -3) end
  return '~' .. (string.gsub(sub(id, 1, -3), '.', hex))
end

local function record_key(bucket, collection, tenant, id)
  return keys_of(bucket) .. 'r:' .. collection .. ':' .. tenant .. ':' .. token(id)
end

-- Where the header ends, or nil where the value is not as it was sealed.
local function sealed(value)
  local books, identity = tonumber(sub(value, 138, 145)), tonumber(sub(value, 146, HEAD))
  if not books or not identity or sub(value, 1, 1) ~= '1' then return nil end
  local finish = HEAD + books + identity
  if sub(redis.sha1hex(sub(value, 18, finish)), 1, 16) ~= sub(value, 2, 17) then return nil end
  return finish
end

-- The indexes of a bucket: a partition's records by creation (t), all records (a), marks and tombstones (g) and what owes (o) by id,
-- and the registry of a tenant's partitions (n). Of partitions: their marks (m), and those of which something is kept (e).
local function index_key(bucket, index, collection, of)
  if of then return keys_of(bucket) .. index .. ':' .. collection .. ':' .. of end
  return keys_of(bucket) .. index .. ':' .. collection
end

local function unlist(bucket, collection, tenant, id, partition, created)
  local index = index_key(bucket, 't', collection, partition)
  call('ZREM', index, created .. id)
  call('ZREM', index_key(bucket, 'a', collection), id .. tenant .. created .. partition)
  if call('EXISTS', index) == 0 then call('SREM', index_key(bucket, 'n', collection, tenant), partition) end
end
