-- IDENTIFY (docs/protocol.md R8a): what stands in fg:node, and the live marks. Changes nothing; also answered by a replica.
-- KEYS  fg:node
-- ARGV  none
-- Reply live marks, then run, base, claim, marks, evicted, sync as they stand there ('' where missing)
-- Why atomic: the marks are those of the moment at which the record was read; the settings are read behind it.
local out = {command_marks()}
for _, value in ipairs(redis.call('HMGET', KEYS[1], 'run', 'base', 'claim', 'marks', 'evicted', 'sync')) do out[#out + 1] = value or '' end
return out
