-- Writes, in order, each under its condition (the table of `memory.ports.writes`); then everything that changed is stored at once.
--
-- Nothing is written before every write is judged: `together` keeps nothing by not storing, and a key that may not be touched
-- (a slot on its way to another node) fails the call before the first change.

local TOGETHER, ONE_SERVER, GRACE = take() == '1', take() == '1', tonumber(take())
local NO_VERSION = string.rep('0', 19)
local standing, order, partitions, changed_partitions, named = {}, {}, {}, {}, {}

-- Values ------------------------------------------------------------------------------------------------------------

local function parsed(value)
  if not value then return nil end
  local finish = sealed(value)
  if not finish then return {kind = 'c', broken = true, version = NO_VERSION, role = '-', owing = '-', partition = NOWHERE, value = value} end
  local books = HEAD + tonumber(sub(value, 138, 145))
  local sound = sub(redis.sha1hex(sub(value, finish + 1)), 1, 16) == sub(value, 122, 137) -- else only what the header says is known
  return {
    kind = sound and sub(value, 18, 18) or 'c', broken = not sound, role = sub(value, 19, 19), owing = sub(value, 20, 20), version = sub(value, 21, 39),
    generation = sub(value, 40, 58), created = sub(value, 59, 74), partition = sub(value, 75, 106), ends = sub(value, 107, 121),
    digest = sub(value, 122, 137), books = sub(value, HEAD + 1, books), identity = sub(value, books + 1, finish), value = value,
    finish = finish,
  }
end

local function content(stored)
  return stored.content or sub(stored.value, stored.finish + 1)
end

local function assembled(stored)
  local sizes = format('%08d%08d', #stored.books, #stored.identity)
  local covered = stored.kind .. stored.role .. stored.owing .. stored.version .. stored.generation .. stored.created .. stored.partition
    .. stored.ends .. stored.digest .. sizes .. stored.books .. stored.identity
  return '1' .. sub(redis.sha1hex(covered), 1, 16) .. covered .. content(stored)
end

-- What changes without a new version: tier (of a mark: where to), accesses, last access, end of a mark or tombstone, then
-- two for each step owed: a token that tells steps apart, and the step.
local function books(stored)
  return cjson.decode(stored.books)
end

-- What stands --------------------------------------------------------------------------------------------------------

local function place()
  local bucket, collection, tenant, id = take(), take(), take(), take()
  local key = record_key(bucket, collection, tenant, id)
  local found = standing[key]
  if not found then
    found = {key = key, bucket = bucket, collection = collection, tenant = tenant, id = id}
    found.was = parsed(call('GET', key))
    found.now = found.was
    standing[key] = found
    order[#order + 1] = found
  end
  return found
end

local function let_stand(found, stored)
  stored.value = assembled(stored)
  found.now = stored
end

local function answer(status, version, generation, number, value)
  return status .. format('%19s%16.0f%16.0f', version, generation or 0, number or 0) .. (value or '')
end

local function stood(status, found)
  local now = found.now
  return answer(status, now and now.version or '', 0, 0, now and now.value)
end

-- `when` is a letter, the version of AtVersion and the role it asks for; `tier` is '' or '=' and the tier it asks for.
local function holds(when, tier, now, version)
  local condition, role = sub(when, 1, 1), sub(when, 21, 21)
  if condition == 'L' then return true end
  if condition == 'S' then return now ~= nil and sub(now.value, 1, 17) == sub(when, 2) end
  if now == nil then return condition ~= 'V' end
  if condition == 'A' then return false end
  if condition == 'N' then return now.version < version end
  if now.kind == 'm' or now.version ~= sub(when, 2, 20) then return false end
  if now.kind ~= 'r' then return now.kind == 't' and role == '-' and tier == '' end
  return (role == '-' or role == now.role) and (tier == '' or tier == '=' .. books(now)[1])
end

local function refused(found, when)
  local unreadable = found.now and found.now.kind == 'c' and sub(when, 1, 1) == 'V'
  return stood(unreadable and 'X' or 'C', found)
end

-- Partitions: generation, and the buckets beside its own in which ids of other partitions' making put some of its records.
-- Such a bucket has a copy of the generation, so that its records are judged in one step too.

local function partition_at(bucket, partition)
  local key = keys_of(bucket) .. 'p:' .. partition
  local found = partitions[key]
  if not found then
    local held = call('HMGET', key, 'g', 'b')
    found = {key = key, bucket = bucket, name = partition, generation = tonumber(held[1] or '0'), elsewhere = held[2] or '', changed = {}}
    partitions[key] = found
  end
  return found
end

-- `identity` names the partition: what is kept of one whose name is not known could never be forgotten.
local function change(found, field, value, identity)
  if identity and not found.known then
    found.known = true
    named[#named + 1] = {found = found, identity = identity}
  end
  if next(found.changed) == nil then changed_partitions[#changed_partitions + 1] = found end
  found.changed[field] = value
end

local function raise(found, to, identity)
  if to > found.generation then
    found.generation = to
    change(found, 'g', format('%.0f', to), identity)
  end
end

local function enrol(found, bucket, identity)
  for i = 1, #found.elsewhere, 2 do
    if sub(found.elsewhere, i, i + 1) == bucket then return end
  end
  found.elsewhere = found.elsewhere .. bucket
  change(found, 'b', found.elsewhere, identity)
end

-- The partition as the record's bucket knows it. `brought` is the generation read in the partition's own bucket where that is on another server.
local function partition_of(bucket, home, partition, brought, identity)
  local here = partition_at(bucket, partition)
  if bucket == home then return here end
  if not ONE_SERVER then
    raise(here, brought)
    return here
  end
  local own = partition_at(home, partition)
  enrol(own, bucket, identity)
  raise(here, own.generation)
  return here
end

-- Writes ------------------------------------------------------------------------------------------------------------

local function put()
  local found, when, tier, carried, head, home, brought = place(), take(), take(), take(), take(), take(), tonumber(take())
  local stored = {
    kind = 'r', role = sub(head, 1, 1), owing = sub(head, 2, 2), version = sub(head, 3, 21), created = sub(head, 22, 37),
    partition = sub(head, 38, 69), ends = sub(head, 70, 84), digest = sub(head, 85, 100), books = take(), identity = take(), content = take(),
  }
  local here = partition_of(found.bucket, home, stored.partition, brought, stored.identity)
  local generation = carried == '' and here.generation or tonumber(carried)
  if generation < here.generation then return stood('G', found) end
  if not holds(when, tier, found.now, stored.version) then return refused(found, when) end
  stored.generation = format('%019.0f', generation)
  let_stand(found, stored)
  return answer('A', stored.version, generation)
end

local function grave(kind, version, owing, ends, kept, identity, digest, note)
  return {
    kind = kind, role = '-', owing = owing, version = version, generation = NO_VERSION, created = string.rep('0', 16), partition = NOWHERE,
    ends = ends, digest = digest, books = kept, identity = identity, content = note,
  }
end

local function delete()
  local found, when, tier, version = place(), take(), take(), take()
  local tombstone = grave('t', version, take(), take(), take(), take(), take(), take())
  if not holds(when, tier, found.now, version) or (found.now == nil and sub(when, 1, 1) ~= 'N') then return refused(found, when) end
  let_stand(found, tombstone)
  return answer('A', version)
end

local function release()
  local found, at_version, to = place(), take(), take()
  local owing, ends, kept, digest = take(), take(), take(), take()
  local now = found.now
  if now == nil or now.version ~= at_version then return stood('C', found) end
  if now.kind == 'm' and books(now)[1] == to then return answer('A', at_version) end
  if now.kind ~= 'r' or now.role ~= 'h' then return stood('C', found) end
  local mark = grave('m', at_version, owing, ends, kept, now.identity, digest, '')
  mark.partition = now.partition -- it is listed among the partition's marks
  let_stand(found, mark)
  return answer('A', at_version)
end

local function settled(kept, tokens)
  local left = {}
  for i = 1, 4 do left[i] = kept[i] end
  for i = 5, #kept, 2 do
    if not tokens[kept[i]] then
      left[#left + 1] = kept[i]
      left[#left + 1] = kept[i + 1]
    end
  end
  return left
end

local function annotate()
  local found, at_version, role_is, role, tier, accessed, discard, ends = place(), take(), take(), take(), take(), take(), take(), take()
  local tokens = {}
  for _ = 1, tonumber(take()) do tokens[take()] = true end
  local now = found.now
  if now == nil or now.version ~= at_version or now.kind == 'c' then return stood('C', found) end
  if now.kind == 'r' and role_is ~= '-' and now.role ~= role_is then return stood('C', found) end
  if now.kind ~= 'r' and (role_is ~= '-' or role ~= '-' or tier ~= '' or accessed ~= '') then return stood('C', found) end
  local kept = settled(books(now), tokens)
  if tier ~= '' then kept[1] = sub(tier, 2) end
  if accessed ~= '' then kept[2], kept[3] = format('%.0f', tonumber(kept[2]) + 1), accessed end
  if discard ~= '' and now.kind ~= 'r' then kept[4] = discard end
  local stored = {content = content(now)}
  for _, field in ipairs({'kind', 'version', 'generation', 'created', 'partition', 'digest', 'identity'}) do stored[field] = now[field] end
  stored.role = role ~= '-' and role or now.role
  stored.owing = #kept > 4 and 'o' or '-'
  stored.ends = discard ~= '' and now.kind ~= 'r' and ends or now.ends
  stored.books = cjson.encode(kept)
  let_stand(found, stored)
  return answer('A', at_version)
end

local function purge()
  local found, at_version, role_is = place(), take(), take()
  local now = found.now
  if now == nil then return answer('A', '') end
  local takes = role_is == '-' and (now.kind == 'm' or now.kind == 't')
  if now.kind == 'r' then takes = now.role == (role_is == '-' and 'c' or role_is) and (now.role == 'c' or now.role == 'a') end
  if not takes or now.version ~= at_version then return stood('C', found) end
  found.now = nil
  return answer('A', '')
end

local function raise_generation()
  local bucket, partition, to, identity = take(), take(), take(), take()
  local own = partition_at(bucket, partition)
  raise(own, to == '' and own.generation + 1 or tonumber(to), identity ~= '' and identity)
  if ONE_SERVER then
    for i = 1, #own.elsewhere, 2 do raise(partition_at(sub(own.elsewhere, i, i + 1), partition), own.generation) end
  end
  return answer('A', '', 0, own.generation, own.elsewhere)
end

-- On a cluster, for an id that another partition's digest is in: what the partition's own bucket has to know and say before the write.
local function prepare()
  local home, partition, bucket, identity = take(), take(), take(), take()
  local own = partition_at(home, partition)
  enrol(own, bucket, identity)
  return answer('A', '', own.generation)
end

-- A value that cannot be read: kept aside for people to look at, with a note in its place. Its reader says by `digest` what it read, and, for where
-- the header does not tell any more (it is not as sealed), under which partition and creation the indexes list it (nowhere, if it does not know: they still do).
local function set_aside()
  local found, digest, partition, created, ends, kept, identity, note_digest, note = place(), take(), take(), take(), take(), take(), take(), take(), take()
  local now = found.now
  if now == nil or (now.kind == 'c' and not now.broken) or redis.sha1hex(now.value) ~= digest then return answer('C', '') end
  local note_of = grave('c', now.version, '-', ends, kept, identity, note_digest, note)
  if now.created then partition, created = now.partition, now.created end
  note_of.partition, note_of.created = partition, created
  call('HSET', index_key(found.bucket, 'q', found.collection), found.tenant .. ':' .. token(found.id), now.value)
  let_stand(found, note_of)
  return answer('A', now.version)
end

local WRITES = {
  put = put, delete = delete, release = release, annotate = annotate, purge = purge, raise = raise_generation, prepare = prepare,
  set_aside = set_aside,
}

-- Storing -----------------------------------------------------------------------------------------------------------

local function is_listed(stored)
  return stored and (stored.kind == 'r' or stored.kind == 'c') and stored.partition ~= NOWHERE
end

local function is_grave(stored)
  return stored and (stored.kind == 'm' or stored.kind == 't')
end

-- When the server may forget it: not while it owes a step, and of records only cached copies.
local function deadline(stored)
  if stored.owing == 'o' or stored.ends == NEVER or (stored.kind == 'r' and stored.role ~= 'c') then return nil end
  return tonumber(stored.ends) + GRACE
end

-- An index lives as long as the longest-lived of what it names.
local function stretch(index, lived, ends)
  if lived == -1 then return end
  if not ends then
    if lived >= 0 then call('PERSIST', index) end
    return
  end
  local clock = call('TIME')
  local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
  if lived == -2 or ends > now + lived then call('PEXPIREAT', index, format('%.0f', ends)) end
end

local function list(found, stored, is_new)
  local index = index_key(found.bucket, 't', found.collection, stored.partition)
  local lived = call('PTTL', index)
  if is_new then
    call('ZADD', index, 0, stored.created .. found.id)
    call('ZADD', index_key(found.bucket, 'a', found.collection), 0, found.id .. found.tenant .. stored.created .. stored.partition)
    if lived == -2 then call('SADD', index_key(found.bucket, 'n', found.collection, found.tenant), stored.partition) end
  end
  stretch(index, lived, deadline(stored))
end

local function enlist(found, index, was, is)
  if was == is then return end
  local key, member = index_key(found.bucket, index, found.collection), found.id .. found.tenant
  if is then call('ZADD', key, 0, member) else call('ZREM', key, member) end
end

-- A partition's marks, by the keys they stand under: as long as there are some, what is kept of the partition is not forgotten.
local function enlist_mark(found, was, now)
  local left = was and was.kind == 'm' and was.partition ~= NOWHERE and was.partition
  local come = now and now.kind == 'm' and now.partition ~= NOWHERE and now.partition
  if left and left ~= come then call('SREM', keys_of(found.bucket) .. 'm:' .. left, found.key) end
  if not come then return end
  local marks = keys_of(found.bucket) .. 'm:' .. come
  local lived = call('PTTL', marks)
  call('SADD', marks, found.key)
  stretch(marks, lived, deadline(now))
end

local function store(found)
  local was, now = found.was, found.now
  local was_listed, is_now_listed = is_listed(was), is_listed(now)
  local stays = was_listed and is_now_listed and was.partition == now.partition and was.created == now.created
  if was_listed and not stays then unlist(found.bucket, found.collection, found.tenant, found.id, was.partition, was.created) end
  if is_now_listed then list(found, now, not stays) end
  enlist(found, 'g', is_grave(was) or false, is_grave(now) or false)
  enlist_mark(found, was, now)
  enlist(found, 'o', was ~= nil and was.owing == 'o', now ~= nil and now.owing == 'o')
  if was and was.kind == 'c' and not was.broken and not (now and now.kind == 'c') then
    call('HDEL', index_key(found.bucket, 'q', found.collection), found.tenant .. ':' .. token(found.id))
  end
  if not now then
    call('DEL', found.key)
    return
  end
  local ends = deadline(now)
  if ends then
    call('SET', found.key, now.value, 'PXAT', format('%.0f', math.max(ends, 1)))
  else
    call('SET', found.key, now.value)
  end
end

-- On a cluster: reading every key that is about to change fails while their slot moves to another node.
local function touch(found)
  for _, stored in pairs({found.was or {}, found.now or {}}) do
    local index = index_key(found.bucket, 't', found.collection, stored.partition or NOWHERE)
    local bucket, collection = found.bucket, found.collection
    call('EXISTS', index, index_key(bucket, 'a', collection), index_key(bucket, 'n', collection, found.tenant), index_key(bucket, 'g', collection), index_key(bucket, 'o', collection))
    call('EXISTS', keys_of(bucket) .. 'e', keys_of(bucket) .. 'm:' .. (stored.partition or NOWHERE))
  end
end

local answers, whole = {}, true
while at < #ARGV do
  local outcome = WRITES[take()]()
  whole = whole and sub(outcome, 1, 1) == 'A'
  answers[#answers + 1] = framed(outcome)
end
if not TOGETHER or whole then
  if not ONE_SERVER then
    for _, found in ipairs(order) do
      if found.now ~= found.was then touch(found) end
    end
  end
  for _, found in ipairs(changed_partitions) do
    for field, value in pairs(found.changed) do call('HSET', found.key, field, value) end
  end
  for _, one in ipairs(named) do
    if next(one.found.changed) ~= nil then call('HSET', keys_of(one.found.bucket) .. 'e', one.found.name, one.identity) end
  end
  for _, found in ipairs(order) do
    if found.now ~= found.was then store(found) end
  end
end
return table.concat(answers)
