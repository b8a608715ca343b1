-- Put before every script (FORGETTING IN ONE LIFE): what Redis itself counts of commands by which a running node can lose data or change
-- how it keeps them. The counts only grow within the life of a process, so whatever was done and put right again still shows.
-- KEYS and ARGV  those of the script behind it
-- Reply 'lost resets set': calls of commands that lose or replace data; the time that CONFIG RESETSTAT took, + 1, or 0 where it never ran
--       (it sets all counts to 0, its own afterwards to 1); calls of CONFIG SET
local LOSES = {'replicaof', 'slaveof', 'failover', 'flushall', 'flushdb', 'swapdb', 'debug', 'restore', 'restore-asking', 'migrate', 'move', 'copy', 'rename',
  'renamenx', 'module|load', 'module|loadex'}

local function command_marks()
  local stats = redis.call('INFO', 'commandstats')
  local function count(name)  -- calls and the time they took
    local at = string.find(stats, '\ncmdstat_' .. name .. ':', 1, true)  -- plain, from the start of the line: half of what patterns take
    if at then return string.match(stats, ':calls=(%d+),usec=(%d+)', at) end
    return 0, 0
  end
  local lost = 0
  for _, name in ipairs(LOSES) do lost = lost + count(name) end
  local calls, usec = count('config|resetstat')
  return string.format('%.0f %.0f %.0f', lost, tonumber(calls) > 0 and usec + 1 or 0, count('config|set'))
end
