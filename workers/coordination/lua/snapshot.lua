-- Snapshot: what is held of each job, ages by Redis' clock, and the epoch in which that is so.
-- ATOMIC   one job's facts are of one moment, and so are all of one call's.
-- KEYS     permits index lease_due reservation_due markers notices progress
-- ARGV     nonce
-- ELEMENT  job
-- REPLIES  -
-- USES     base permits

-- An offer from the future was made before the clock was set back: as old as can be, so that it is made again.
local function offered_age_ms(m)
  return m.offered_ms > NOW and LIFE_MS_MAX or NOW - m.offered_ms
end

local function marker_of(job)
  local m = decode('marker', redis.call('HGET', KEY.markers, job))
  return m and {
    m.expected_token, m.queue, m.priority, age_ms(m.set_ms), offered_age_ms(m), m.offers, m.refused,
    age_ms(m.refused_ms),
  }
end

local function reservation_of(job)
  local r = held('reservation', job)
  local lapsed = r and r.deadline_ms <= NOW and 1 or 0
  return r and { r.expected_token, r.incarnation, r.claim, r.queue, r.key, age_ms(r.since_ms), lapsed }
end

local function lease_of(job)
  local l = held('lease', job)
  local lapsed = l and l.deadline_ms <= NOW and 1 or 0
  return l and { l.token, l.attempt, l.incarnation, l.queue, l.key, l.epoch, age_ms(l.since_ms), lapsed }
end

local function notice_of(job)
  local notice = decode('notice', redis.call('HGET', KEY.notices, job))
  return notice and { notice.token }
end

local function progress_of(job)
  local p = decode('progress', redis.call('HGET', KEY.progress, job))
  return p and { p.token, p.progress, p.total, p.phase, age_ms(p.at_ms) }
end

return each(function(e)
  return {
    marker_of(e.job) or false, reservation_of(e.job) or false, lease_of(e.job) or false, notice_of(e.job) or false,
    progress_of(e.job) or false,
  }
end)
