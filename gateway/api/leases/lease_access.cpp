#include <gateway/api/leases/lease_access.hpp>

#include <gateway/http/codec/fields.hpp>
#include <gateway/http/codec/header_values.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

namespace fencegate::api {
namespace {

void read_resource_header(std::string_view text, http::fault_list& faults, std::vector<lockcore::resource_name>& out) {
    while (true) {
        const auto comma = text.find(',');
        const auto decoded = runtime::percent_decode(http::trim(text.substr(0, comma)));
        if (!decoded) return faults.add("Fencing-Resource", "has a % without two hexadecimal digits; send %25");
        auto name = lockcore::resource_name::parse(*decoded);
        if (!name) return faults.add("Fencing-Resource", name.error().detail + "; several are separated by commas");
        out.push_back(std::move(*name));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    const auto before = [](const auto& a, const auto& b) { return a.str() < b.str(); };
    std::ranges::sort(out, before);
    const auto duplicate =
        std::ranges::adjacent_find(out, [](const auto& a, const auto& b) { return a.str() == b.str(); });
    if (out.size() > lockcore::resources_max || duplicate != out.end() ||
        lockcore::names_bytes(out) > lockcore::names_bytes_max) {
        faults.add("Fencing-Resource", "has to be 1 to " + std::to_string(lockcore::resources_max) +
                                           " different names of resources with at most " +
                                           std::to_string(lockcore::names_bytes_max) + " bytes together");
    }
}

/// Returns the claims of the headers that carry a token of another issuer.
result<lockcore::lease_claims> read_bare_token(const http::request& r) {
    const auto granted = r.rights->require_for_some(scope::bare_tokens);
    if (!granted) return granted.error();
    lockcore::lease_claims out;
    out.holder.principal = r.principal;
    http::fault_list faults;
    read_resource_header(r.header("fencing-resource"), faults, out.resources);
    const auto text = http::trim(r.header("fencing-token"));
    std::uint64_t token = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc{} || end != text.data() + text.size() || token < 1 || token > lockcore::fencing_token_max)
        faults.add("Fencing-Token", "has to be an integer from 1 to 9007199254740991");
    if (!faults.empty()) return std::move(faults).to_failure();
    out.token = lockcore::fencing_token{token};
    for (const scope needed : {scope::bare_tokens, scope::writes}) {
        const auto allowed = r.rights->require(needed, out.resources);
        if (!allowed) return allowed.error();
    }
    return out;
}

}  // namespace

errc meaning_of(lockcore::errc code) {
    switch (code) {
        case lockcore::errc::invalid_argument:
            return errc::invalid_request;
        case lockcore::errc::resource_locked:
            return errc::resource_locked;
        case lockcore::errc::no_quorum:
            return errc::no_quorum;
        case lockcore::errc::lease_lost:
            return errc::lease_lost;
        case lockcore::errc::renewals_exhausted:
            return errc::renewals_exhausted;
        case lockcore::errc::lease_not_authentic:
            return errc::lease_not_authentic;
        case lockcore::errc::other_cell:
            return errc::misdirected_request;
        case lockcore::errc::too_many_waiters:
            return errc::too_many_waiters;
        case lockcore::errc::idempotency_mismatch:
            return errc::idempotency_mismatch;
        case lockcore::errc::busy:
            return errc::too_many_requests;
        // A caller that hung up does not read the answer; any other was cancelled because the gateway stops.
        case lockcore::errc::cancelled:
        case lockcore::errc::shutting_down:
            return errc::shutting_down;
    }
    return errc::internal_error;
}

failure to_failure(const lockcore::failure& f) {
    failure out = make_failure(meaning_of(f.code), f.detail);
    if (f.code == lockcore::errc::resource_locked) {
        out.facts["remaining_ms"] = f.remaining.count();
        out.facts["queue_position"] = f.queue_position;
        // A node may have a value that is no lease under the key (`answers` names it), without a known end.
        if (f.answers.empty() || f.remaining.count() > 0) out.retry_after = f.remaining;
    }
    if (f.code == lockcore::errc::other_cell) out.facts["named_cell"] = f.cell;
    if (f.code == lockcore::errc::no_quorum || !f.answers.empty()) out.facts["nodes"] = describe_answers(f.answers);
    return out;
}

boost::json::array describe_answers(const std::vector<lockcore::node_answer>& answers) {
    boost::json::array nodes;
    for (const auto& answer : answers) {
        boost::json::object node{{"name", answer.name}, {"answer", answer.answer}};
        if (!answer.detail.empty()) node["detail"] = answer.detail;
        if (answer.quarantine_left.count() > 0) node["quarantine_left_ms"] = answer.quarantine_left.count();
        nodes.push_back(std::move(node));
    }
    return nodes;
}

result<void> check_lease_use(const lockcore::lease_claims& claims, scope needed, const http::request& r) {
    const auto allowed = r.rights->require(needed, claims.resources);
    if (!allowed) return allowed.error();
    if (claims.holder.principal == r.principal || r.rights->require(scope::operate, claims.resources)) return {};
    return make_failure(errc::forbidden, "The lease belongs to another principal; using it needs the scope 'operate'.");
}

result<lockcore::lease_claims> open_lease(const lockcore::lock_manager& locks, std::string_view lease_id, scope needed,
                                          const http::request& r) {
    auto claims = locks.verify_lease_id(lease_id);
    if (!claims) return to_failure(claims.error());
    const auto allowed = check_lease_use(*claims, needed, r);
    if (!allowed) return allowed.error();
    return std::move(*claims);
}

actor make_actor(const lockcore::lease_claims& claims, const http::request& r) {
    actor initiator;
    initiator.principal = r.principal;
    initiator.owner = claims.holder.owner;
    set_origin(initiator, r.origin);
    return initiator;
}

bool has_fencing_headers(const http::request& r) {
    return r.has_header("fencing-lease") || r.has_header("fencing-resource") || r.has_header("fencing-token");
}

result<lockcore::lease_claims> open_lease_or_token(const lockcore::lock_manager& locks, std::string_view lease_id,
                                                   const http::request& r) {
    const bool bare = r.has_header("fencing-resource") || r.has_header("fencing-token");
    if (bare && !lease_id.empty()) {
        return invalid_field("Fencing-Token", "can't be sent together with a lease, which has a token of its own");
    }
    if (bare) return read_bare_token(r);
    if (!lease_id.empty()) return open_lease(locks, lease_id, scope::writes, r);
    return make_failure(errc::fencing_required,
                        "No lease was sent: put its lease_id into the body of /v1/writes or into the header "
                        "Fencing-Lease.");
}

}  // namespace fencegate::api
