-- IDENTIFY (docs/protocol.md R8a): reads fg:node and the live command marks. It writes nothing, and runs on a replica
-- too.
-- KEYS  fg:node
-- ARGV  none
-- Reply the live marks, then the fields run, base, claim, marks, evicted, sync, floor of fg:node ('' if missing)
-- Why atomic: marks and fields are of one moment; the settings are read afterwards.
local out = {command_marks()}
local fields = redis.call('HMGET', KEYS[1], 'run', 'base', 'claim', 'marks', 'evicted', 'sync', 'floor')
for _, value in ipairs(fields) do out[#out + 1] = value or '' end
return out
