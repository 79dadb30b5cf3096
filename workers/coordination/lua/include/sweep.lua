-- What both expire scripts do. Removal is the only end that a permit's deadline has.

local function reply(word, more, lapsed)
  ANSWER[4] = { { word, more and 1 or 0, lapsed } }
  return ANSWER
end

-- A gap between sweeps means that this server could not be reached, by those who would have renewed as little as by those
-- who sweep: they get `grace_ms` to be first. The mark is written before anything is removed, so that a server that is
-- out of memory, on which no lease can be renewed either, refuses the sweep too.
local function in_grace(kind)
  local swept, grace = kind .. '_swept_ms', kind .. '_grace_until_ms'
  local grace_ms = tonumber(ARG.grace_ms)
  if NOW - EPOCH[swept] > tonumber(ARG.gap_ms) then EPOCH[grace] = NOW + grace_ms end
  EPOCH[grace] = math.min(EPOCH[grace], NOW + grace_ms)
  EPOCH[swept] = NOW
  save_epoch()
  return NOW < EPOCH[grace]
end

-- The clock was set back: what was written in its future counts from now.
local function pull_back(kind, rows_max)
  local far = redis.call('ZRANGEBYSCORE', DUE[kind], '(' .. (NOW + tonumber(ARG.life_ms)), '+inf', 'LIMIT', 0, rows_max)
  for _, job in ipairs(far) do
    local fact = held(kind, job)
    if fact and fact.since_ms > NOW then
      fact.deadline_ms = NOW + fact.deadline_ms - fact.since_ms
      fact.since_ms = NOW
      put(kind, job, fact)
    end
  end
end

local function sweep(kind, token_name)
  if in_grace(kind) then return reply('grace', false, {}) end
  local rows_max = tonumber(ARG.rows_max)
  pull_back(kind, rows_max)
  local due = redis.call('ZRANGEBYSCORE', DUE[kind], '-inf', NOW, 'LIMIT', 0, rows_max)
  local lapsed = {}
  for _, job in ipairs(due) do
    local fact = held(kind, job)
    if not fact then
      redis.call('ZREM', DUE[kind], job)
    elseif fact.deadline_ms > NOW then
      redis.call('ZADD', DUE[kind], fact.deadline_ms, job)
    else
      remove(kind, job, fact)
      lapsed[#lapsed + 1] = { job, fact[token_name], fact.incarnation }
    end
  end
  return reply('swept', #due == rows_max, lapsed)
end
