-- Shared by all scripts: names of keys, the layout of values, and the indexes that list
-- a value. `keys.py` and `codec.py` define the same names and values in Python.
--
-- Every key of a bucket has the bucket's hash tag. So a script that gets one bucket
-- touches one slot, whatever it reads. ARGV[1] is the prefix of all keys. ARGV[2] says
-- whether this server is the only one. ARGV[3] is unique to the call. ARGV[4] is the
-- number of changes of a partition that are reported. The script's own arguments
-- follow.

local PREFIX, ONE_SERVER, ONCE, TOLD, at = ARGV[1], ARGV[2] == '1', ARGV[3], tonumber(ARGV[4]), 4
local HEAD, NOWHERE, NEVER, AT_ONCE = 170, string.rep('0', 32), string.rep('-', 16), string.rep('0', 16)
local NO_VERSION = string.rep('0', 19)
local sub, format, call = string.sub, string.format, redis.call

local function take()
  at = at + 1
  return ARGV[at]
end

local function framed(text)
  return struct.pack('>I4', #text) .. text
end

-- Keys --------------------------------------------------------------------------------------------------------------

-- The start of every key of a bucket.
local function keys_of(bucket)
  return '{' .. PREFIX .. ':' .. bucket .. '}:'
end

local function index_key(bucket, index, of)
  return keys_of(bucket) .. index .. ':' .. of
end

-- The key of a record, mark or tombstone.
local function address_at(bucket, collection, tenant, id)
  return {bucket = bucket, collection = collection, tenant = tenant, id = id, key = index_key(bucket, 'r', collection .. ':' .. tenant .. ':' .. id)}
end

local function take_address()
  return address_at(take(), take(), take(), take())
end

-- The key of an index. `of` is the collection and, for the records of a partition (t),
-- the partition.
local function partition_index(address, partition)
  return index_key(address.bucket, 't', address.collection .. ':' .. partition)
end

-- The key of a partition's changes (c), which tell processes whether their cached data
-- is current.
local function changes_key(bucket, collection, partition)
  return index_key(bucket, 'c', collection .. ':' .. partition)
end

-- On a cluster a slot may be moving to another node. A key that is missing here may be
-- there, and only a command on two keys is refused then. So the script sends one before
-- it reports a key as missing.
local function surely_missing(bucket, key)
  if not ONE_SERVER then call('EXISTS', key, keys_of(bucket) .. 'e') end
  return true
end

-- Values ------------------------------------------------------------------------------------------------------------

local function value_at(address)
  return call('GET', address.key) or surely_missing(address.bucket, address.key) and nil
end

-- Reads the header of a sound value. `tier` is the size of its tier; the header with
-- tier and pending steps ends at `finish`.
local function opened(value, tier, finish)
  return {
    kind = sub(value, 18, 18), role = sub(value, 19, 19), owing = sub(value, 20, 20), version = sub(value, 21, 39), created = sub(value, 59, 74),
    partition = sub(value, 75, 106), expiry = sub(value, 107, 122), digest = sub(value, 123, 138), changed = sub(value, 155, HEAD),
    tier = sub(value, HEAD + 1, HEAD + tier), owed = sub(value, HEAD + tier + 1, finish), finish = finish, value = value,
  }
end

-- Of a damaged value (`broken`), only its existence is known.
local function parsed(value)
  if not value then return nil end
  local tier, owed = tonumber(sub(value, 139, 146)), tonumber(sub(value, 147, 154))
  local finish = tier and owed and sub(value, 1, 1) == '4' and HEAD + tier + owed
  if not finish or sub(redis.sha1hex(sub(value, 18, finish)), 1, 16) ~= sub(value, 2, 17) then
    return {kind = 'c', broken = true, role = '-', owing = '-', version = NO_VERSION, partition = NOWHERE, expiry = NEVER, value = value}
  end
  return opened(value, tier, finish)
end

-- Indexes -----------------------------------------------------------------------------------------------------------

-- The line of a value's content, if it ends with the names of ordered texts.
local function line_with_orders(stored)
  local finish = string.find(stored.value, '\n', stored.finish + 1, true)
  if finish and sub(stored.value, finish - 2, finish - 1) == ']]' then
    local sound, line = pcall(cjson.decode, sub(stored.value, stored.finish + 1, finish - 1))
    return sound and line or nil
  end
end

-- Adds the indexes of a partition's records by a text (o). A member begins with the
-- text. No text is the beginning of another once NUL is escaped and two NULs follow.
local function add_ordered_texts(address, stored, add)
  local line = line_with_orders(stored)
  for _, name in ipairs(line and line[14] or {}) do
    local text = line[9][name]
    if type(text) == 'string' then
      local key = index_key(address.bucket, 'o', address.collection .. ':' .. stored.partition .. ':' .. name)
      add(key, string.gsub(text, '%z', '\0\255') .. '\0\0' .. address.id .. address.tenant)
    end
  end
end

-- The index members of the value at an address, as pairs of key and member. By id: a
-- partition's records by creation (t), all records (a), marks and tombstones (g). By
-- time: what is due (d), home records that expire (x), and home or arriving records of
-- a tier (u). By a text (o). Unreadable values are in the index (u) without a tier.
local function members_of(address, stored)
  local found = {}
  if not stored or stored.broken then return found end
  local bucket, collection, who = address.bucket, address.collection, address.id .. address.tenant
  local function add(key, member) found[#found + 1] = {key, member} end
  local function due(moment, why) add(keys_of(bucket) .. 'd', moment .. who .. why .. collection) end
  if (stored.kind == 'r' or stored.kind == 'c') and stored.partition ~= NOWHERE then
    add(partition_index(address, stored.partition), stored.created .. who)
    add(index_key(bucket, 'a', collection), who .. stored.created .. stored.partition)
    if stored.kind == 'c' then add(index_key(bucket, 'u', collection), AT_ONCE .. who) end
  end
  if stored.kind == 'r' then
    add_ordered_texts(address, stored, add)
    if stored.owing == 'o' and (stored.role == 'h' or stored.role == 'a') then due(AT_ONCE, 'o') end
    if stored.role == 'a' then due(AT_ONCE, 'a') end
    if stored.role == 'h' or stored.role == 'a' then
      local earlier = stored.changed < stored.created and stored.changed or stored.created
      add(index_key(bucket, 'u', collection .. ':' .. stored.tier), earlier .. who)
    end
    if stored.role == 'h' and stored.expiry ~= NEVER then add(index_key(bucket, 'x', collection), stored.expiry .. who) end
  elseif stored.kind ~= 'c' then
    add(index_key(bucket, 'g', collection), who)
    if stored.owing == 'o' then due(AT_ONCE, 'o') elseif stored.expiry ~= NEVER then due(stored.expiry, 'd') end
  end
  return found
end

-- The address that a member names: id and tenant follow a time, come first, or come
-- last, behind a text.
local function address_in(bucket, index, collection, member)
  local start = index == 'o' and #member - 68 or (index == 'a' or index == 'g') and 0 or 16
  return address_at(bucket, index == 'd' and sub(member, 86) or collection, sub(member, start + 37, start + 68), sub(member, start + 1, start + 36))
end

-- Whether the value is where the member says. Damaged values pass, and so do
-- quarantined ones without a partition or text, because their readers must see them.
local function belongs(address, key, member, value)
  local stored = parsed(value)
  if stored.kind == 'c' and (stored.partition == NOWHERE or sub(key, #keys_of(address.bucket) + 1, #keys_of(address.bucket) + 2) == 'o:') then return true end
  for _, pair in ipairs(members_of(address, stored)) do
    if pair[1] == key and pair[2] == member then return true end
  end
  return false
end

-- Partitions --------------------------------------------------------------------------------------------------------
--
-- Each partition has a generation (p), the collections with its records (s), and the
-- keys of its marks (m). The registries list partitions with records (e) and with a
-- generation (i), by tenant, partition and their names.

local function generation_of(bucket, partition)
  local key = index_key(bucket, 'p', partition)
  return tonumber(call('HGET', key, 'g') or surely_missing(bucket, key) and '0')
end

local function named(bucket, registry, tenant, partition)
  return call('ZRANGE', keys_of(bucket) .. registry, '[' .. tenant .. partition, '(' .. tenant .. partition .. '~', 'BYLEX')
end

local function unnamed(bucket, registry, tenant, partition)
  call('ZREMRANGEBYLEX', keys_of(bucket) .. registry, '[' .. tenant .. partition, '(' .. tenant .. partition .. '~')
end

-- Whether the partition has records in the address's collection. If it has none, its
-- lists no longer name it.
local function has_any(address, partition)
  local index = partition_index(address, partition)
  if call('EXISTS', index) == 1 then return true end
  surely_missing(address.bucket, index)
  local collections = keys_of(address.bucket) .. 's:' .. partition
  call('SREM', collections, address.collection)
  if call('EXISTS', collections) == 0 then unnamed(address.bucket, 'e', address.tenant, partition) end
  return false
end

-- Changes -----------------------------------------------------------------------------------------------------------
--
-- A list of the ids that changed last, each after a stamp. Stamps come from outside and
-- never repeat. Cached data whose stamp is not in the list is outdated, because the
-- list was flushed, reset or shortened. Copies that the server drops are not listed.

local STAMP, stamped = 12, 0

-- Records that these ids of a partition have changed; a script's step calls it last.
-- There is no list without records, or if the server has no memory for it.
local function tell(bucket, collection, partition, ids)
  local changes, lived = changes_key(bucket, collection, partition), call('PTTL', index_key(bucket, 't', collection .. ':' .. partition))
  stamped = stamped + 1
  local stamp, entries = ONCE .. struct.pack('>I4', stamped), {}
  if #ids > TOLD or lived == -2 then call('DEL', changes) end
  if lived == -2 then return end
  for i = 1, #ids > TOLD and 0 or #ids do entries[i] = stamp .. ids[i] end
  local told = redis.pcall('RPUSH', changes, unpack(#entries > 0 and entries or {stamp}))
  if type(told) ~= 'number' then
    call('DEL', changes)
  else
    if told > 2 * TOLD then call('LTRIM', changes, -TOLD, -1) end
    if lived >= 0 then call('PEXPIRE', changes, lived) end
  end
end

-- The stamp of the last change, and the ids that changed after the given stamp; nil if
-- that is unknown.
local function told_since(bucket, collection, partition, stamp)
  local changes = changes_key(bucket, collection, partition)
  local newest = call('LINDEX', changes, -1) or surely_missing(bucket, changes) and ''
  if newest == '' then return nil, nil end
  newest = sub(newest, 1, STAMP)
  if newest == stamp then return newest, {} end
  local all, ids, seen = stamp ~= '' and call('LRANGE', changes, 0, -1) or {}, {}, {}
  for i = #all, 1, -1 do
    local id = sub(all[i], STAMP + 1)
    if sub(all[i], 1, STAMP) == stamp then return newest, ids end
    if id ~= '' and not seen[id] then
      seen[id], ids[#ids + 1] = true, id
    end
  end
  return newest, nil
end
