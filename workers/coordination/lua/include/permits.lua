-- Permits: the reservations and live leases that are present, and the epoch they belong to. One hash is the truth;
-- `index` and `due` only find and count what is in it, and are made anew from it whenever their sizes disagree.

local DUE = { lease = KEY.lease_due, reservation = KEY.reservation_due }
local SCOPES = { queue = 'q', key = 'k', incarnation = 'w' }

local function index_members(kind, job, fact)
  return 'q\0' .. fact.queue .. '\0' .. kind .. '\0' .. job,
    'k\0' .. fact.key .. '\0' .. kind .. '\0' .. job,
    'w\0' .. fact.incarnation .. '\0' .. kind .. '\0' .. job
end

local function split_field(field)
  local kind, job = string.match(field, '^(%l+)/(.+)$')
  if DUE[kind] and is_text(job) then return kind, job end
end

local function write_index(kind, job, fact)
  local queue, key, incarnation = index_members(kind, job, fact)
  redis.call('ZADD', KEY.index, 0, queue, 0, key, 0, incarnation)
  redis.call('ZADD', DUE[kind], fact.deadline_ms, job)
end

-- --- the epoch ------------------------------------------------------------------------------------------------------

local EPOCH = decode('epoch', redis.call('HGET', KEY.permits, '@epoch'))

local function save_epoch()
  redis.call('HSET', KEY.permits, '@epoch', cjson.encode(EPOCH))
end

-- Permits written before the epoch began are from another life of the data: a backup may have brought back a lease that
-- had expired. None of them is live.
local function begin_epoch(run_id)
  redis.call('UNLINK', KEY.permits, KEY.index, KEY.lease_due, KEY.reservation_due)
  EPOCH = {
    value = ARG.nonce, since_ms = NOW, run_id = run_id,
    lease_swept_ms = NOW, lease_grace_until_ms = 0,
    reservation_swept_ms = NOW, reservation_grace_until_ms = 0,
  }
  save_epoch()
end

local function rebuild_index()
  redis.call('UNLINK', KEY.index, KEY.lease_due, KEY.reservation_due)
  local all = redis.call('HGETALL', KEY.permits)
  for place = 1, #all, 2 do
    local field = all[place]
    local kind, job = split_field(field)
    local fact = kind and decode(kind, all[place + 1])
    if fact and fact.epoch == EPOCH.value then
      write_index(kind, job, fact)
    elseif field ~= '@epoch' then
      redis.call('HDEL', KEY.permits, field)
    end
  end
end

-- A restart is told by the server's own run id, in the very script that is about to judge what it finds: no connection,
-- proxy or replica promotion can come in between.
do
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
  if not EPOCH or EPOCH.run_id ~= run_id then begin_epoch(run_id) end
  -- The clock was set back: an epoch that begins in the future would stay young until then, and a young one keeps
  -- permits back and is not reaped.
  if EPOCH.since_ms > NOW then
    EPOCH.since_ms = NOW
    save_epoch()
  end
  local permits = redis.call('HLEN', KEY.permits) - 1
  local due = redis.call('ZCARD', KEY.lease_due) + redis.call('ZCARD', KEY.reservation_due)
  if due ~= permits or redis.call('ZCARD', KEY.index) ~= 3 * permits then rebuild_index() end
  ANSWER[1], ANSWER[2] = EPOCH.value, EPOCH.since_ms
end

-- --- permits by job -------------------------------------------------------------------------------------------------

local function put(kind, job, fact)
  redis.call('HSET', KEY.permits, kind .. '/' .. job, cjson.encode(fact))
  write_index(kind, job, fact)
end

local function remove(kind, job, fact)
  redis.call('HDEL', KEY.permits, kind .. '/' .. job)
  redis.call('ZREM', DUE[kind], job)
  redis.call('ZREM', KEY.index, index_members(kind, job, fact))
end

-- The job's lease or reservation, or nil. What cannot be read, or is of another epoch, is removed: it holds no permit.
local function held(kind, job)
  local text = redis.call('HGET', KEY.permits, kind .. '/' .. job)
  if not text then return nil end
  local fact = decode(kind, text)
  if fact and fact.epoch == EPOCH.value then return fact end
  if fact then
    remove(kind, job, fact)
  else
    redis.call('HDEL', KEY.permits, kind .. '/' .. job)
    redis.call('ZREM', DUE[kind], job)
  end
  return nil
end

-- --- counting -------------------------------------------------------------------------------------------------------

local function permit_count()
  return redis.call('HLEN', KEY.permits) - 1
end

local function permit_count_by(scope, name, kind)
  local prefix = SCOPES[scope] .. '\0' .. name .. '\0'
  if kind then prefix = prefix .. kind .. '\0' end
  return redis.call('ZLEXCOUNT', KEY.index, '[' .. prefix, '(' .. prefix .. '\255')
end

local function is_full(used, limit)
  limit = tonumber(limit)
  return limit >= 0 and used >= limit
end

-- Which of the limits that concern every permit leaves no room for one more, or nil.
local function limit_reached(e)
  if is_full(permit_count(), e.global_limit) then return 'global_limit' end
  if is_full(permit_count_by('queue', e.queue), e.queue_limit) then return 'queue_limit' end
  if e.key ~= '' and is_full(permit_count_by('key', e.key), e.key_limit) then return 'key_limit' end
  return nil
end
