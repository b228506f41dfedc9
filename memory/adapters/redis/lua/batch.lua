-- Applies writes in order, each under its condition (the table of
-- `memory.ports.writes`), and then stores all changes at once.
--
-- Nothing is written before every write is decided: `together` then keeps nothing by
-- not storing. A key that may not be accessed (its slot is moving to another node)
-- fails the call before the first change.

local TOGETHER, GRACE = take() == '1', tonumber(take())
local standing, order, partitions, raised = {}, {}, {}, {}

-- What stands -------------------------------------------------------------------------------------------------------

local function place()
  local asked = take_address()
  local found = standing[asked.key]
  if not found then
    found = asked
    found.was = parsed(value_at(found))
    if found.was and not found.was.broken and sub(redis.sha1hex(sub(found.was.value, found.was.finish + 1)), 1, 16) ~= found.was.digest then
      found.was.unreadable = true -- only the header's data is known
    end
    found.now = found.was
    standing[found.key] = found
    order[#order + 1] = found
  end
  return found
end

local function partition_at(bucket, partition)
  local key = index_key(bucket, 'p', partition)
  if not partitions[key] then partitions[key] = {key = key, bucket = bucket, generation = generation_of(bucket, partition)} end
  return partitions[key]
end

local function answer(status, generation, value)
  return status .. format('%016.0f', generation or 0) .. (value or '')
end

local function stood(status, found)
  return answer(status, 0, found.now and found.now.value)
end

-- Whether exactly the value that was read is stored: nothing, the value with this
-- checksum, or, for a damaged value, the one with this digest.
local function is_what(token, now)
  if token == '' then return now == nil end
  if now == nil then return false end
  if #token == 17 then return not now.broken and not now.unreadable and sub(now.value, 1, 17) == token end
  return redis.sha1hex(now.value) == token
end

-- `when` is a letter. V (AtVersion) is followed by the version, the role and, after
-- '=', the tier. S (the value that was read) is followed by its token.
local function holds(when, now, version)
  local condition, role, tier = sub(when, 1, 1), sub(when, 21, 21), sub(when, 22)
  if condition == 'L' then return true end
  if condition == 'S' then return is_what(sub(when, 2), now) end
  if now == nil then return condition ~= 'V' end
  if condition == 'A' then return false end
  if condition == 'N' then return now.version < version end
  if now.kind == 'c' or now.unreadable or now.kind == 'm' or now.version ~= sub(when, 2, 20) then return false end
  if now.kind == 't' then return role == '-' and tier == '' end
  return (role == '-' or role == now.role) and (tier == '' or tier == '=' .. now.tier)
end

-- Whether there is a pending step that a write neither repeats nor completes. A damaged
-- value counts as having none.
local function owes_on(now, owed, settles)
  if now == nil or now.owing ~= 'o' or now.unreadable then return false end
  local too = {}
  if owed ~= '' then
    for _, step in ipairs(cjson.decode(owed)) do too[step[1]] = true end
  end
  for _, step in ipairs(cjson.decode(now.owed)) do
    if not too[step[1]] and not settles[step[2]] then return true end
  end
  return false
end

-- Writes ------------------------------------------------------------------------------------------------------------

-- Stores the given value, or nothing. A record without a generation gets its
-- partition's; with `fenced`, an older generation is refused.
local function write()
  local found, when, kind, head, generation, fenced, tail, tier, owed, content, name, upkeep =
    place(), take(), take(), take(), take(), take() == '1', take(), take(), take(), take(), take(), take() == '1'
  local settles = {}
  for _ = 1, tonumber(take()) do settles[take()] = true end
  local version, partition, condition = sub(head, 3, 21), sub(tail, 17, 48), sub(when, 1, 1)
  if fenced then
    local current = partition_at(found.bucket, partition).generation
    if generation == '' then generation = current end
    if tonumber(generation) < current then return stood('G', found) end
  end
  if not holds(when, found.now, version) then return stood('C', found) end
  if condition ~= 'L' and condition ~= 'S' and owes_on(found.now, owed, settles) then return stood('C', found) end
  found.now = nil
  if kind ~= '' then
    local covered = kind .. head .. format('%019.0f', tonumber(generation)) .. tail .. tier .. owed
    found.now = opened('4' .. sub(redis.sha1hex(covered), 1, 16) .. covered .. content, #tier, 17 + #covered)
    found.name, found.upkeep = name, upkeep
  end
  return answer('A', tonumber(generation))
end

-- Raises the generation by one, or at least to `to`; only if it is `expected`, if that
-- is given.
local function raise()
  local bucket, tenant, partition, to, expected, name = take(), take(), take(), take(), take(), take()
  local own = partition_at(bucket, partition)
  if expected ~= '' and tonumber(expected) ~= own.generation then return answer('C') end
  to = to == '' and own.generation + 1 or tonumber(to)
  if to > own.generation then
    own.generation, own.name = to, tenant .. partition .. name
    raised[#raised + 1] = own
  end
  return answer('A', own.generation)
end

-- Storing -----------------------------------------------------------------------------------------------------------

-- Time in ms when the server may drop the value: never with a pending step, and among
-- records only for cached copies.
local function deadline(stored)
  if stored.owing == 'o' or stored.expiry == NEVER or (stored.kind == 'r' and stored.role ~= 'c') then return nil end
  local high, low = tonumber(sub(stored.expiry, 1, 8), 16) - 2147483648, tonumber(sub(stored.expiry, 9), 16)
  return math.max(math.ceil((high * 4294967296 + low) / 1000), 0) + GRACE
end

-- A set of names lives as long as its longest-lived member. `lived` is its time to live
-- before this member.
local function stretch(key, lived, expires)
  if lived == -1 then return end
  if not expires then
    if lived >= 0 then call('PERSIST', key) end
    return
  end
  local clock = call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  if lived == -2 or expires > now + lived then call('PEXPIREAT', key, format('%.0f', expires)) end
end

local function add(key, member, expires)
  local lived = call('PTTL', key)
  call('SADD', key, member)
  stretch(key, lived, expires)
end

-- The partition whose index lists the value, and the partition whose marks include it.
local function partitions_of(stored)
  if not stored or stored.partition == NOWHERE then return nil, nil end
  return (stored.kind == 'r' or stored.kind == 'c') and stored.partition or nil, stored.kind == 'm' and stored.partition or nil
end

-- The partitions whose records have changed: those in which the value is or was a
-- record, except for copies that the server drops by itself. The partition of a damaged
-- value is unknown, so all partitions of its tenant in this bucket count.
local function partitions_changed(found)
  local changed = {}
  for _, stored in pairs({was = found.was, now = found.now}) do
    if stored.kind == 'c' and stored.partition == NOWHERE then
      for _, name in ipairs(named(found.bucket, 'e', found.tenant, '')) do changed[sub(name, 33, 64)] = true end
    elseif stored.kind == 'c' or (stored.kind == 'r' and stored.role ~= 'c') then
      changed[stored.partition] = true
    end
  end
  return changed
end

local function store(found)
  local was, now, there = found.was, found.now, {}
  local was_listed, was_marked = partitions_of(was)
  local listed, marked = partitions_of(now)
  local expires, index = now and deadline(now), listed and partition_index(found, listed)
  local lived = index and call('PTTL', index)
  for _, pair in ipairs(members_of(found, was)) do there[pair[1] .. ' ' .. pair[2]] = pair end
  for _, pair in ipairs(members_of(found, now)) do
    local known = pair[1] .. ' ' .. pair[2]
    if there[known] then there[known] = nil else call('ZADD', pair[1], 0, pair[2]) end
  end
  local bucket = found.bucket
  local by_text = keys_of(bucket) .. 'o:'
  for _, pair in pairs(there) do -- a quarantined value stays in the order of its text
    if not (now and now.kind == 'c' and sub(pair[1], 1, #by_text) == by_text) then call('ZREM', pair[1], pair[2]) end
  end
  if listed then
    stretch(index, lived, expires)
    if lived ~= -1 then add(keys_of(bucket) .. 's:' .. listed, found.collection, expires) end
    if lived == -2 and found.name ~= '' then call('ZADD', keys_of(bucket) .. 'e', 0, found.tenant .. listed .. found.name) end
  end
  if was_listed and was_listed ~= listed then has_any(found, was_listed) end
  if was_marked and was_marked ~= marked then call('SREM', keys_of(bucket) .. 'm:' .. was_marked, found.key) end
  if marked then add(keys_of(bucket) .. 'm:' .. marked, found.key, expires) end
  local quarantine, field = index_key(bucket, 'q', found.collection), found.tenant .. ':' .. found.id
  if was and was.kind == 'c' then call('HDEL', quarantine, field) end
  if not now then
    call('DEL', found.key)
    return
  end
  if now.kind == 'c' then call('HSET', quarantine, field, was.value) end
  if expires then
    call('SET', found.key, now.value, 'PXAT', format('%.0f', math.max(expires, 1)))
  else
    call('SET', found.key, now.value)
  end
end

-- On a cluster, reading every key that is about to change fails while their slot moves
-- to another node.
local function touch(found)
  local start = keys_of(found.bucket)
  for _, stored in pairs({found.was or {}, found.now or {}}) do
    local partition = stored.partition or NOWHERE
    call('EXISTS', start .. 'e', start .. 's:' .. partition, start .. 'm:' .. partition, index_key(found.bucket, 'q', found.collection))
    for _, pair in ipairs(stored.kind and members_of(found, stored) or {}) do call('EXISTS', pair[1]) end
  end
  for partition in pairs(partitions_changed(found)) do
    call('EXISTS', start .. 'e', changes_key(found.bucket, found.collection, partition), partition_index(found, partition))
  end
end

-- Whether a full server must store this, too: it takes no more space than before, is a
-- tombstone or a mark, or is a small record that deletions need.
local function frees_room(all)
  for _, found in ipairs(all) do
    local now, was = found.now, found.was
    local shrinks = not now or now.kind ~= 'r' or found.upkeep or (was and was ~= now and #now.value <= #was.value)
    if now ~= was and not shrinks then return false end
  end
  return true
end

-- The stored ids by the partitions that they change.
local function changes_in(all)
  local changes = {}
  for _, found in ipairs(all) do
    if found.now ~= found.was then
      for partition in pairs(partitions_changed(found)) do
        local key = changes_key(found.bucket, found.collection, partition)
        changes[key] = changes[key] or {bucket = found.bucket, collection = found.collection, partition = partition, ids = {}}
        table.insert(changes[key].ids, found.id)
      end
    end
  end
  return changes
end

local WRITES, answers, whole = {write = write, raise = raise}, {}, true
while at < #ARGV do
  local outcome = WRITES[take()]()
  whole = whole and sub(outcome, 1, 1) == 'A'
  answers[#answers + 1] = framed(outcome)
end
if not TOGETHER or whole then
  if not ONE_SERVER then
    for _, one in ipairs(raised) do call('EXISTS', one.key, keys_of(one.bucket) .. 'i') end
    for _, found in ipairs(order) do
      if found.now ~= found.was then touch(found) end
    end
  end
  -- Redis refuses a script at its memory limit only until its first writing command.
  -- This command needs no memory.
  if #order > 0 and frees_room(order) then call('DEL', keys_of(order[1].bucket) .. 'none') end
  if #order == 0 and #raised > 0 then call('DEL', keys_of(raised[1].bucket) .. 'none') end
  for _, one in ipairs(raised) do
    call('HSET', one.key, 'g', format('%.0f', one.generation))
    call('ZADD', keys_of(one.bucket) .. 'i', 0, one.name)
  end
  local changes = changes_in(order)
  for _, found in ipairs(order) do
    if found.now ~= found.was then store(found) end
  end
  for _, change in pairs(changes) do tell(change.bucket, change.collection, change.partition, change.ids) end
end
return table.concat(answers)
