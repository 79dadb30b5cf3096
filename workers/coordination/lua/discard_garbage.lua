-- DiscardGarbage: delete a field that no script can read.
-- ATOMIC   it is judged again by the step that deletes it, so a fact written over it stays.
-- KEYS     permits index lease_due reservation_due markers notices progress
-- ARGV     nonce
-- ELEMENT  kind field
-- REPLIES  discarded | well_formed | absent
-- USES     base permits

local FACT_IN = { markers = 'marker', notices = 'notice', progress = 'progress' }

local function is_readable(e, text)
  local kind, job = FACT_IN[e.kind], e.field
  if not kind then kind, job = split_field(e.field) end
  local fact = kind and is_text(job) and decode(kind, text)
  return fact and (e.kind ~= 'permits' or fact.epoch == EPOCH.value)
end

return each(function(e)
  local text = redis.call('HGET', KEY[e.kind], e.field)
  if not text then return 'absent' end
  if e.field == '@epoch' or is_readable(e, text) then return 'well_formed' end
  redis.call('HDEL', KEY[e.kind], e.field)
  return 'discarded'
end)
