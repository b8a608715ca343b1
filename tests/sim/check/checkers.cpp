#include <sim/check/checkers.hpp>

#include <algorithm>

namespace sim {
namespace {

std::string number(std::uint64_t v) {
    return std::to_string(v);
}
/// Returns a token as EPOCH.COUNT; an epoch has 2^32 tokens.
std::string token_text(std::uint64_t t) {
    return number(t >> 32) + "." + number(t & 0xffffffffU);
}

}  // namespace

void checkers::fail(checker found_by, std::string text) {
    if (found_ || (only_ && *only_ != found_by)) return;
    ctx_.note("VIOLATION", static_cast<std::uint64_t>(found_by));
    found_ = violation{found_by, ctx_.now(), std::move(text)};
}

void checkers::attempt_begun(resource_set set, sim_nonce nonce) {
    const auto [known, is_new] = attempts_.try_emplace(nonce);
    if (!is_new) return;
    known->second.resources = set;
    known->second.begun = ctx_.now();
    known->second.before = highest_complete_;
}

bool checkers::is_complete(const attempt& a, std::uint64_t token) const {
    const auto found = a.stamped.find(token);
    return found != a.stamped.end() && found->second.count() >= ctx_.config.nodes / 2 + 1;
}

void checkers::complete(const attempt& a, sim_nonce nonce, std::uint64_t token) {
    for_each_resource(a.resources, [&](std::uint32_t r) {
        if (token <= a.before[r]) {
            fail(checker::tokens, "resource " + number(r) + " was granted with " + token_text(token) +
                                      " to a request that began after " + token_text(a.before[r]) + " was complete");
        }
        const bool shared = is_shared(a.resources, r);
        const auto [known, is_new] = tokens_[r].try_emplace(token, token_owner{nonce, shared});
        if (!is_new && known->second.nonce != nonce && !(shared && known->second.shared)) {
            fail(checker::tokens, "resource " + number(r) + " was granted twice with " + token_text(token));
        } else if (is_new && std::next(known) != tokens_[r].end()) {
            ctx_.hit(probe::two_grants_overlapped);
        }
        highest_complete_[r] = std::max(highest_complete_[r], token);
        if (!shared) highest_complete_.exclusive[r] = std::max(highest_complete_.exclusive[r], token);
    });
}

void checkers::granted(resource_set set, sim_nonce nonce, std::uint64_t token) {
    const auto found = attempts_.find(nonce);
    if (found == attempts_.end() || found->second.resources != set || !is_complete(found->second, token)) {
        fail(checker::tokens, "attempt " + number(nonce) + " was granted with " + token_text(token) +
                                  ", with which no majority of the nodes was stamped");
    }
}

void checkers::waiter_not_answered(std::uint32_t client) {
    fail(checker::liveness, "client " + number(client) + " was not answered at the end of its wait");
}

void checkers::lease_reported_lost(std::uint32_t client, sim_nonce nonce, std::uint64_t token,
                                   sim_time confirmed_since) {
    const auto requested = hold_request_tokens_.find(nonce);
    if (requested != hold_request_tokens_.end() && requested->second > token)
        return ctx_.hit(probe::token_raised_after_hold);
    if (const auto a = attempts_.find(nonce); a != attempts_.end() && a->second.late_token > token) return;
    if (!ctx_.config.exclusion_promised() || last_node_fault_ >= confirmed_since || revoked_.contains(nonce)) return;
    fail(checker::holds, "client " + number(client) + " was answered that the lease of attempt " + number(nonce) +
                             " is lost, although it is valid, has an unreleased hold, and no node lost it");
}

void checkers::guard_accepted(std::uint32_t server, std::uint32_t resource, std::uint64_t token) {
    guarded_database& database = databases_[server];
    if (!database.lets_in) {
        fail(checker::generation, "database " + number(server) + " let in " + token_text(token) + " for resource " +
                                      number(resource) + " before its change of generation was finished");
    } else if (token <= database.before[resource]) {
        fail(checker::generation, "database " + number(server) + " let in " + token_text(token) + " for resource " +
                                      number(resource) + ", and " + token_text(database.before[resource]) +
                                      " was complete before its change of generation began");
    }
    std::uint64_t& accepted = database.accepted[resource];
    if (token < accepted) {
        fail(checker::guard, "the guard of resource " + number(resource) + " accepted " + token_text(token) +
                                 " after " + token_text(accepted));
    }
    accepted = std::max(accepted, token);
}

void checkers::generation_finished(std::uint32_t server, std::uint64_t floor) {
    guarded_database& database = databases_[server];
    database.lets_in = true;
    for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
        if (database.before[r] < floor) continue;
        fail(checker::generation, "database " + number(server) + " has the floor " + token_text(floor) + ", and " +
                                      token_text(database.before[r]) + " of resource " + number(r) +
                                      " was complete before its change of generation began");
    }
}

void checkers::lost_write_not_reported(std::uint32_t gateway) {
    fail(checker::lost_writes,
         "gateway " + number(gateway) + " acknowledged a write that is not in the database, and does not report it");
}

void checkers::generation_not_settled(std::uint32_t gateway) {
    fail(checker::liveness,
         "gateway " + number(gateway) + " still changes the storage generation after the faults ended");
}

void checkers::stock_counted(std::uint32_t resource, std::uint64_t sold, std::uint64_t gone) {
    if (sold == gone) return;
    fail(checker::stock, "of resource " + number(resource) + " " + number(sold) + " units were sold and " +
                             number(gone) + " are missing");
}

void checkers::lease_valid(resource_set set, sim_nonce nonce, sim_time until) {
    if (!ctx_.config.exclusion_promised() || revoked_.contains(nonce)) return;
    for_each_resource(set, [&](std::uint32_t r) {
        auto& valid = valid_[r];
        std::erase_if(valid, [&](const valid_lease& v) { return v.until <= ctx_.now(); });
        bool known = false;
        for (valid_lease& v : valid) {
            if (v.nonce == nonce) {
                known = true;
                v.until = std::max(v.until, until);
                continue;
            }
            if (v.shared && is_shared(set, r)) {
                ctx_.hit(probe::lease_shared);
                continue;
            }
            fail(checker::exclusion, "resource " + number(r) + ": the lease of attempt " + number(nonce) +
                                         " is valid until " + number(static_cast<std::uint64_t>(until.count())) +
                                         " us, that of attempt " + number(v.nonce) + " until " +
                                         number(static_cast<std::uint64_t>(v.until.count())) + " us");
        }
        if (!known) valid.push_back({nonce, until, is_shared(set, r)});
    });
}

void checkers::lease_valid_only(sim_nonce nonce, sim_time until) {
    for (auto& valid : valid_) {
        for (valid_lease& v : valid) {
            if (v.nonce == nonce) v.until = std::min(v.until, until);
        }
    }
}

void checkers::not_granted_after_healing(std::uint32_t resource) {
    fail(checker::liveness, "nobody was granted resource " + number(resource) + " after the faults ended");
}

void checkers::run_does_not_end() {
    fail(checker::liveness, "something is repeated without a delay");
}

void checkers::key_left(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, const char* reason) {
    fail(checker::leftovers, "node " + number(node) + " keeps a lease of attempt " + number(nonce) + " on resource " +
                                 number(resource) + ": " + reason);
}

void checkers::lease_reported_alive(resource_set set, sim_nonce nonce, std::uint64_t token, const token_floors& before,
                                    const char* command) {
    if (upgraded_.contains(nonce) && (!ctx_.config.exclusion_promised() || end_requested_.contains(nonce))) return;
    for_each_resource(set, [&](std::uint32_t r) {
        const std::uint64_t newest = is_shared(set, r) ? before.exclusive[r] : before[r];
        if (newest <= token) return;
        fail(checker::staleness, std::string(command) + " said that " + token_text(token) + " is alive on resource " +
                                     number(r) + ", and " + token_text(newest) + " was complete before it began");
    });
}

void checkers::stamped(std::uint32_t node, std::uint32_t resource, bool shared, sim_nonce nonce,
                       std::uint64_t number_on_node, std::uint64_t token) {
    if (const auto c = closed_.find(nonce); c != closed_.end() && c->second.deleted_on[node])
        c->second.was_put_back = true;
    stamp& last = stamps_[node][resource];
    const bool may_be_equal = last.nonce == nonce || (last.shared && shared);
    const bool rises = may_be_equal ? number_on_node >= last.number : number_on_node > last.number;
    if (!rises) {
        fail(checker::stamps, "node " + number(node) + " was stamped with " + token_text(number_on_node) +
                                  " by attempt " + number(nonce) + " after " + token_text(last.number) +
                                  " by attempt " + number(last.nonce) + ", resource " + number(resource));
    }
    if (number_on_node >= last.number) last = {nonce, number_on_node, shared};
    if (token != number_on_node) {
        if (upgraded_.insert(nonce).second) ctx_.hit(probe::lease_upgraded);
        return;
    }
    if (const auto requested = hold_request_tokens_.find(nonce); requested != hold_request_tokens_.end())
        requested->second = std::max(requested->second, token);
    const auto found = attempts_.find(nonce);
    if (found == attempts_.end()) return;
    if (ctx_.now() > found->second.begun + 2 * ctx_.config.answer_bound) {
        found->second.late_token = std::max(found->second.late_token, token);
        return;
    }
    const bool was_complete = is_complete(found->second, token);
    found->second.stamped[token].set(node);
    if (!was_complete && is_complete(found->second, token)) complete(found->second, nonce, token);
}

void checkers::attempt_not_undone(std::uint32_t node, sim_nonce nonce) {
    fail(checker::leftovers, "attempt " + number(nonce) + " was not granted, and its lease on node " + number(node) +
                                 " expires without an undo");
}

/// Returns whether nodes may have forgotten what they had at that time, where they may vote again at once.
bool checkers::may_have_forgotten(sim_time since) const {
    return !ctx_.config.exclusion_promised() && last_node_fault_ >= since - ctx_.config.max_ttl;
}

void checkers::closed(sim_nonce nonce, const lockcore::hold_id& own) {
    closed_.try_emplace(nonce, closed_lease{ctx_.now(), own});
    for (const answered_hold& h : holds_[nonce]) {
        if (h.id == own || h.released || h.until <= ctx_.now() || may_have_forgotten(h.since)) continue;
        fail(checker::seal, "the lease of attempt " + number(nonce) + " was closed while another hold of it is valid");
    }
}

void checkers::hold_answered(sim_nonce nonce, const lockcore::hold_id& id, sim_time until) {
    auto& known = holds_[nonce];
    const auto found = std::ranges::find(known, id, &answered_hold::id);
    if (found == known.end()) {
        known.push_back({id, ctx_.now(), until, revoked_.contains(nonce)});
    } else {
        found->until = std::max(found->until, until);
    }
}

void checkers::hold_released(sim_nonce nonce, const lockcore::hold_id& id) {
    for (answered_hold& h : holds_[nonce])
        h.released = h.released || h.id == id;
}

void checkers::lease_deleted(std::uint32_t node, sim_nonce nonce) {
    if (const auto found = closed_.find(nonce); found != closed_.end()) found->second.deleted_on.set(node);
}

void checkers::further_hold_answered(std::uint32_t client, sim_nonce nonce, const lockcore::hold_id& id) {
    const auto found = closed_.find(nonce);
    // A late answer may say of the hold that is released what was true before.
    if (found == closed_.end() || id == found->second.own || may_have_forgotten(found->second.since)) return;
    // The RELEASE is under way,
    // so copies for a node that forgets now may lack the mark (docs/protocol.md, Not promised).
    if (last_node_fault_ >= found->second.since || found->second.was_put_back) return;
    fail(checker::seal, "client " + number(client) + " was granted a hold of the lease of attempt " + number(nonce) +
                            ", which was closed to new holds");
}

void checkers::revoked(sim_nonce nonce) {
    revoked_.insert(nonce);
    for (answered_hold& h : holds_[nonce])
        h.released = true;
    end_requested(nonce);
    lease_valid_only(nonce, ctx_.now());
}

}  // namespace sim
