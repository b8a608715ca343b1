-- Put before every script (FORGETTING IN ONE LIFE): what Redis itself counts of commands by which a running node can lose data or change
-- how it keeps them. The counts only grow within the life of a process, so whatever was done and put right again still shows.
-- KEYS and ARGV  those of the script behind it
-- Reply 'lost resets set': calls of commands that lose or replace data; the time that CONFIG RESETSTAT took, + 1, or 0 where it never ran
--       (it sets all counts to 0, its own afterwards to 1); calls of CONFIG SET
local function command_marks()
  local losing = {'replicaof', 'slaveof', 'failover', 'flushall', 'flushdb', 'swapdb', 'debug', 'restore', 'restore-asking', 'migrate', 'move', 'copy',
    'rename', 'renamenx', 'module|load', 'module|loadex'}
  local stats = redis.call('INFO', 'commandstats')
  local function count(name)
    local _, before = string.find(stats, 'cmdstat_' .. name .. ':calls=', 1, true)
    if not before then return 0, 0 end
    local calls, usec = string.match(stats, '^(%d+),usec=(%d+)', before + 1)
    return tonumber(calls), tonumber(usec)
  end
  local lost = 0
  for _, name in ipairs(losing) do lost = lost + count(name) end
  local resets, usec = count('config|resetstat')
  return string.format('%.0f %.0f %.0f', lost, resets > 0 and usec + 1 or 0, (count('config|set')))
end
