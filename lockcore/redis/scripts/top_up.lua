-- TOP-UP and UPGRADE (docs/protocol.md): restores a lease on a node that lost it, or makes it count there again, while
-- a majority holds it.
-- KEYS  fg:node, then for each lease: its lease keys, then its counter keys
-- ARGV  run id, then for each lease: number of resources, nonce, ttl in ms, T, tail (as in ACQUIRE), id of the caller's
--       hold, version seen
--       version seen: the version of the lease that this node answered to the caller before, '' = none; UPGRADE needs
--       it
-- Reply one string for each lease: '0 stamp 1' the lease counts for T on this node, with this ttl or a longer one
--       | '0 version 0' it does not count; with this version it can be upgraded
--       | '1' another holder's | '2' its last hold was released, the lease that was seen is gone, or its token is above
--       T (a later token of the same attempt): no effect
--       | '4' the tokens of the epoch are used up | 'E' a counter key has no counter
--       error UNINIT if the node is not admitted under this run id.
-- If the lease is there, the id is added if it is missing and has no tombstone.
-- Why atomic: it must not replace a lease of another holder. It writes (nonce, T) only with the counter: this node may
-- have stamped a newer grant.
-- Why the version: each loss of the lease on this node, and each admission of the node, changes it, so an UPGRADE that
-- comes too late has no effect.
if node[1] ~= ARGV[1] then return redis.error_reply('UNINIT node not admitted') end
local base = tonumber(node[2])

-- Answers that the lease is there and does not count; writes only which holds it has.
local function keep_uncounted(leases, all)
  for i, l in pairs(leases) do
    l.ids, l.tombstones, l.close_marks = all.ids, all.tombstones, all.close_marks
    write_lease(KEYS[i], l)
  end
  return '0 ' .. version_of(all.stamp, base) .. ' 0'
end

local function top_up(k, n, nonce, ttl, text, tail, id, seen)
  local leases, is_complete, is_foreign = read_group(k, n, nonce)
  local T, all, is_newer = tonumber(text), merge_group(leases, k, n, text), false
  ttl = math.max(tonumber(ttl), 1)
  for i, l in pairs(leases) do
    l.left = math.max(time_left(KEYS[i], l), 0)
    ttl, is_newer = math.max(ttl, l.left), is_newer or tonumber(l.token) > T
  end
  if not is_released(all.tombstones, id) then all.ids = add_id(all.ids, id) end
  local restores = not is_complete or all.stamp == ''
  if is_foreign then return '1' end
  if all.ids == '' or (restores and seen ~= '') or (is_newer and not restores) then return '2' end
  local counted = not restores and all.has_token and tonumber(all.stamp) >= base
  if not restores and not counted and version_of(all.stamp, base) ~= seen then return keep_uncounted(leases, all) end
  local counter = read_counters(k + n, n, base)
  if not counter and not counted then return 'E' end

  -- An UPGRADE takes no number of its own, so it is possible at the end of an epoch too.
  local value = restores and math.max(counter + 1, T) or tonumber(all.stamp)
  if not restores and not counted then value = math.max(value, counter) end
  if restores and value % 4294967296 == 0 then return '4' end
  local counts = not restores or value == T
  local number, renewed = string.format('%.0f', value), parse_lease(nonce .. ' 0 ' .. tail)
  if restores then all.close_marks = merge_marks(all.close_marks, renewed.close_marks) end
  for i = k, k + n - 1 do
    local l = renewed
    if not restores then
      l = leases[i]
      local held = math.max(l.held + math.max(l.ttl - l.left, 0), renewed.held)
      l.renewals, l.held = string.format('%d', math.max(l.renewals, renewed.renewals)), string.format('%.0f', held)
    end
    l.stamp, l.token = number, counts and text or '0'
    l.ids, l.tombstones, l.close_marks = all.ids, all.tombstones, all.close_marks
    if not counted then redis.call('SET', KEYS[i + n], number) end
    write_lease(KEYS[i], l, ttl)
  end
  return '0 ' .. number .. (counts and ' 1' or ' 0')
end

return (for_each_lease(2, 7, top_up))
