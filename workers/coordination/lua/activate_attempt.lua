-- ActivateAttempt(a): turn the reservation under which `token` was authorised into that token's live lease.
-- ATOMIC   the permit passes from reservation to lease without a moment of none or two; an older attempt's leftover lease
--          is retired in the same step, a newer one is never displaced; live progress starts where the attempt does.
-- KEYS     permits index lease_due reservation_due progress
-- ARGV     nonce lease_ms
-- ELEMENT  job token attempt incarnation claim progress
-- REPLIES  activated | already_active | not_reserved | reserved_by_another | superseded
-- USES     base permits

local function activate(e)
  local token = tonumber(e.token)
  local lease = held('lease', e.job)
  if lease and lease.token == token and lease.attempt == e.attempt then return 'already_active' end
  if lease and lease.token >= token then return 'superseded' end
  local reservation = held('reservation', e.job)
  if not reservation then return 'not_reserved' end
  local mine = reservation.incarnation == e.incarnation and reservation.claim == e.claim
  if not mine or reservation.expected_token ~= token then return 'reserved_by_another' end
  if lease then remove('lease', e.job, lease) end
  remove('reservation', e.job, reservation)
  put('lease', e.job, {
    token = token, attempt = e.attempt, incarnation = e.incarnation, queue = reservation.queue, key = reservation.key,
    epoch = EPOCH.value, since_ms = NOW, deadline_ms = NOW + tonumber(ARG.lease_ms),
  })
  local report = { token = token, progress = e.progress, total = '', phase = '', at_ms = NOW }
  redis.call('HSET', KEY.progress, e.job, cjson.encode(report))
  return 'activated'
end

return each(function(e) return { activate(e), EPOCH.value } end)
