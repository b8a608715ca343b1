-- Put before every script that gives or prolongs a lease, or says that it lives, behind command_marks.lua: the other half of ADM. Nothing is done
-- for any lease when a command ran since the node was admitted, or last looked at, by which it may have forgotten or may keep its data otherwise.
-- KEYS and ARGV  those of the script behind it
-- Reply nothing, so that the script goes on; or error UNINIT
-- The comparison takes several times as long as an ACQUIRE, so it is made once in each 10 ms of the node's clock; `compared` is the last of these.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 100 + math.floor(time[2] / 10000))
local looked_at = redis.call('HMGET', KEYS[1], 'marks', 'compared')
if looked_at[2] ~= now then
  if looked_at[1] ~= command_marks() then
    return redis.error_reply('UNINIT node not admitted, or to be looked at again')
  end
  redis.call('HSET', KEYS[1], 'compared', now)
end
