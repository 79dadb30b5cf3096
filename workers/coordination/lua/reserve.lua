-- Reserve(j, w): take the marker of `expected_token` and a permit for one incarnation.
-- ATOMIC   permits are counted and taken in one step, so no race takes one beyond a limit; a refusal leaves the marker,
--          and notes on it which limit it was.
-- KEYS     permits index lease_due reservation_due markers
-- ARGV     nonce reservation_ms settle_ms
-- ELEMENT  job expected_token incarnation claim queue key global_limit queue_limit key_limit local_limit executing
-- REPLIES  reserved | already_yours | no_marker | marker_for_other_token | taken | settling | global_limit | queue_limit |
--          key_limit | local_limit
-- USES     base permits

local function refusal(e)
  if age_ms(EPOCH.since_ms) < tonumber(ARG.settle_ms) then return 'settling' end
  local reached = limit_reached(e)
  if reached then return reached end
  local used_here = permit_count_by('incarnation', e.incarnation, 'reservation') + tonumber(e.executing)
  if is_full(used_here, e.local_limit) then return 'local_limit' end
  return nil
end

return each(function(e)
  local expected_token = tonumber(e.expected_token)
  local reservation = held('reservation', e.job)
  if reservation then
    local same = reservation.incarnation == e.incarnation and reservation.claim == e.claim
    if same and reservation.expected_token == expected_token then return 'already_yours' end
    return 'taken'
  end
  local marker = decode('marker', redis.call('HGET', KEY.markers, e.job))
  if not marker then return 'no_marker' end
  if marker.expected_token ~= expected_token then return 'marker_for_other_token' end
  local refused = refusal(e)
  if refused then
    marker.refused = refused
    marker.refused_ms = NOW
    redis.call('HSET', KEY.markers, e.job, cjson.encode(marker))
    return refused
  end
  put('reservation', e.job, {
    expected_token = expected_token, incarnation = e.incarnation, claim = e.claim, queue = e.queue, key = e.key,
    epoch = EPOCH.value, since_ms = NOW, deadline_ms = NOW + tonumber(ARG.reservation_ms),
  })
  redis.call('HDEL', KEY.markers, e.job)
  return 'reserved'
end)
