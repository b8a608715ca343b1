-- After command_marks.lua in front of every script that grants, extends, inspects or closes a lease (docs/protocol.md,
-- FORGETTING IN ONE LIFE): refuses the whole call if the command marks have changed since the admission or the last
-- check of the settings.
-- KEYS and ARGV  those of the script that follows
-- Reply none, the script that follows runs, with run and base in `node`; or error UNINIT
-- The comparison takes longer than an ACQUIRE, so it runs once in each 10 ms of the node's clock; `compared` is the
-- last such time.
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000' .. time[2], -6, -5)
local node = redis.call('HMGET', KEYS[1], 'run', 'base', 'marks', 'compared')
if node[4] ~= now then
  if node[3] ~= command_marks() then
    return redis.error_reply('UNINIT node not admitted, or its settings must be checked again')
  end
  redis.call('HSET', KEYS[1], 'compared', now)
end
