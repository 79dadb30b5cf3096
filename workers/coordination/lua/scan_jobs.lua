-- ScanJobs: one page of the job ids that have any fact, and of the fields that no script can read.
-- ATOMIC   per page only; a fact present through the whole scan is listed at least once. Makes sure on the way that what a
--          page holds of permits is in the index.
-- KEYS     permits index lease_due reservation_due markers notices progress
-- ARGV     nonce kind cursor rows_hint
-- ELEMENT  -
-- REPLIES  -
-- USES     base permits

local FACT_IN = { markers = 'marker', notices = 'notice', progress = 'progress' }

local function job_of(field, text)
  local kind, job = FACT_IN[ARG.kind], field
  if not kind then kind, job = split_field(field) end
  local fact = kind and is_text(job) and decode(kind, text)
  if not fact then return nil end
  if ARG.kind == 'permits' then
    if fact.epoch ~= EPOCH.value then return nil end
    write_index(kind, job, fact)
  end
  return job
end

local page = redis.call('HSCAN', KEY[ARG.kind], ARG.cursor, 'COUNT', ARG.rows_hint)
local jobs, garbage = {}, {}
for place = 1, #page[2], 2 do
  local field = page[2][place]
  local job = job_of(field, page[2][place + 1])
  if job then
    jobs[#jobs + 1] = job
  elseif not (ARG.kind == 'permits' and field == '@epoch') then
    garbage[#garbage + 1] = field
  end
end
ANSWER[4] = { { page[1], jobs, garbage } }
return ANSWER
