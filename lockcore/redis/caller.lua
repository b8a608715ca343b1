-- After holds.lua: recognizes a caller that asks again.
local function without_owner(identity) return (string.gsub(identity, '^(\n[^\n]*\n)[^\n]*', '%1')) end
-- Returns whether the same caller asks again: equal principal, named owner and resources; or an equal idempotency key
-- of the same principal, with any owner.
local function is_same_caller(l, keys, identity)
  if keys ~= '-' and contains(l.keys, string.sub(keys, 1, 16)) then
    return without_owner(l.identity) == without_owner(identity)
  end
  return l.identity == identity and not string.find(identity, '^\n[^\n]*\n\n')
end
-- Returns the idempotency keys and the identity in the tail of a lease.
local function parse_caller(tail) return string.match(tail, '^%d+ %d+ %d+ %d+ (%S+)(\n[^\n]*\n[^\n]*\n[^\n\1]*)\n') end
