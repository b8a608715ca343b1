#include <lockcore/config.hpp>
#include <lockcore/encoding.hpp>
#include <lockcore/events.hpp>
#include <lockcore/invariant.hpp>
#include <lockcore/nodes.hpp>
#include <lockcore/types.hpp>
#include <proto/command.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace lockcore {
namespace {

failure invalid(std::string detail) {
    return make_failure(errc::invalid_argument, std::move(detail));
}

/// Returns why no name begins with this text; null if one can.
const char* find_fault(std::string_view beginning) {
    if (beginning.size() > resource_name::bytes_max) return "a resource name has at most 200 bytes";
    if (!is_utf8(beginning)) return "a resource name is UTF-8";
    if (has_control_character(beginning)) return "a resource name has no control characters";
    if (beginning.starts_with('/') || beginning.find("//") != std::string_view::npos)
        return "a resource name has no empty segment: no slash at its ends, no two in a row";
    return nullptr;
}

}  // namespace

result<resource_name> resource_name::parse(std::string_view text) {
    if (text.empty()) return invalid("a resource name must not be empty");
    if (const char* fault = find_fault(text)) return invalid(fault);
    if (text.ends_with('/')) return invalid("a resource name has no empty segment: no slash at its ends");
    return resource_name{std::string(text)};
}

bool resource_name::is_prefix(std::string_view text) {
    return find_fault(text) == nullptr;
}

std::size_t names_bytes(const std::vector<resource_name>& names) {
    std::size_t out = 0;
    for (const resource_name& name : names)
        out += name.str().size();
    return out;
}

std::uint64_t resource_name::hash() const {
    std::uint64_t h = 14695981039346656037ULL;
    for (char c : text_)
        h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return h;
}

result<nonce> nonce::parse(std::string_view text) {
    if (text.size() != size || !is_lower_hex(text)) return invalid("a nonce has 32 hexadecimal digits");
    nonce n;
    std::ranges::copy(text, n.text_.begin());
    return n;
}

nonce nonce::from_bits(std::uint64_t high, std::uint64_t low) {
    nonce n;
    write_hex(high, std::span(n.text_).first<size / 2>());
    write_hex(low, std::span(n.text_).last<size / 2>());
    return n;
}

result<hold_id> hold_id::parse(std::string_view text) {
    if (text.size() != size || !is_lower_hex(text)) return invalid("a hold has 16 hexadecimal digits");
    hold_id id;
    std::ranges::copy(text, id.text_.begin());
    return id;
}

hold_id hold_id::from_bits(std::uint64_t bits) {
    return of_grant(nonce::from_bits(0, bits));
}

hold_id hold_id::with_last_bit(bool set) const {
    constexpr std::string_view digits = "0123456789abcdef";
    hold_id out = *this;
    out.text_.back() = digits[(digits.find(text_.back()) & ~std::size_t{1}) | std::size_t{set}];
    return out;
}

hold_id hold_id::of_grant(const nonce& attempt) {
    hold_id id;
    std::ranges::copy(attempt.str().substr(nonce::size - size), id.text_.begin());
    return id;
}

std::vector<std::string> config::validate() const {
    std::vector<std::string> faults;
    const auto fault = [&](std::string path, std::string message) {
        faults.push_back(std::move(path) + ": " + std::move(message));
    };
    if (nodes.empty() || nodes.size() > nodes_max || nodes.size() % 2 == 0)
        fault("nodes", "needs an odd number of nodes, 1 to 9");
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const std::string at = "nodes[" + std::to_string(i) + "].";
        if (nodes[i].name.empty()) fault(at + "name", "is missing");
        if (has_control_character(nodes[i].name)) fault(at + "name", "has a control character");
        if (nodes[i].host.empty()) fault(at + "host", "is missing");
        if (!nodes[i].username.empty() && nodes[i].password.empty() && nodes[i].password_file.empty())
            fault(at + "username", "is given without a password");
        if (nodes[i].port == 0) fault(at + "port", "must be 1 to 65535");
        for (std::size_t j = 0; j < i; ++j) {
            if (!nodes[i].name.empty() && nodes[i].name == nodes[j].name)
                fault(at + "name", "is the name of nodes[" + std::to_string(j) + "] too");
            if (nodes[i].host == nodes[j].host && nodes[i].port == nodes[j].port) {
                fault(at + "port",
                      "is the address of nodes[" + std::to_string(j) + "] too: every node must be a server of its own");
            }
        }
    }
    // A bound that is another setting is named.
    const auto within = [&](const char* path, milliseconds v, milliseconds low, milliseconds high,
                            const std::string& low_setting = "", const std::string& high_setting = "") {
        if (v < low || v > high) {
            fault(path, std::to_string(v.count()) + " ms is not between " + std::to_string(low.count()) + low_setting +
                            " and " + std::to_string(high.count()) + " ms" + high_setting);
        }
    };
    using namespace std::chrono_literals;
    within("node_timeout", node_timeout, 1ms, 10s);
    within("node_dead_after", node_dead_after, node_timeout, 10min, " (node_timeout_ms)");
    within("max_ttl", max_ttl, ttl_min, 1h);
    within("default_ttl", default_ttl, ttl_min, max_ttl, "", " (max_ttl_ms)");
    within("answer_bound", answer_bound, 1ms, 10s);
    within("max_wait", max_wait, 0ms, 1h);
    within("max_hold", max_hold, max_ttl, 24h * 365, " (max_ttl_ms)");
    if (max_renewals > renewals_counted) fault("max_renewals", "must be 0 to " + std::to_string(renewals_counted));
    if (handoff_max > 1'000) fault("handoff_max", "must be 0 to 1000");
    if (waiters_max == 0) fault("waiters_max", "must be at least 1");
    if (node_queue_max < 16) fault("node_queue_max", "must be at least 16");
    return faults;
}

const char* to_string(errc code) {
    switch (code) {
        case errc::invalid_argument:
            return "invalid_argument";
        case errc::resource_locked:
            return "resource_locked";
        case errc::no_quorum:
            return "no_quorum";
        case errc::lease_lost:
            return "lease_lost";
        case errc::renewals_exhausted:
            return "renewals_exhausted";
        case errc::lease_not_authentic:
            return "lease_not_authentic";
        case errc::other_cell:
            return "other_cell";
        case errc::too_many_waiters:
            return "too_many_waiters";
        case errc::cancelled:
            return "cancelled";
        case errc::idempotency_mismatch:
            return "idempotency_mismatch";
        case errc::busy:
            return "busy";
        case errc::shutting_down:
            return "shutting_down";
    }
    return "unknown";
}

const char* to_string(node_state state) {
    switch (state) {
        case node_state::unreachable:
            return "unreachable";
        case node_state::identifying:
            return "identifying";
        case node_state::quarantined:
            return "quarantined";
        case node_state::misconfigured:
            return "misconfigured";
        case node_state::voting:
            return "voting";
    }
    return "unknown";
}

const char* to_string(event_kind kind) {
    switch (kind) {
        case event_kind::lease_granted:
            return "lease_granted";
        case event_kind::lease_renewed:
            return "lease_renewed";
        case event_kind::lease_released:
            return "lease_released";
        case event_kind::lease_revoked:
            return "lease_revoked";
        case event_kind::lease_refused:
            return "lease_refused";
        case event_kind::lease_thin:
            return "lease_thin";
        case event_kind::node_quarantined:
            return "node_quarantined";
        case event_kind::node_readmitted:
            return "node_readmitted";
        case event_kind::epoch_raised:
            return "epoch_raised";
    }
    return "unknown";
}

const char* to_string(reply_status status) {
    switch (status) {
        case reply_status::ok:
            return "granted";
        case reply_status::held:
            return "held";
        case reply_status::lost:
            return "lost";
        case reply_status::stale:
            return "stale";
        case reply_status::overflow:
            return "overflow";
        case reply_status::exhausted:
            return "exhausted";
        case reply_status::own:
            return "held by the caller";
        case reply_status::other_holds:
            return "has holds left";
        case reply_status::not_admitted:
            return "not admitted";
        case reply_status::unreachable:
            return "unreachable";
        case reply_status::timeout:
            return "timeout";
        case reply_status::broken:
            return "connection lost";
        case reply_status::error:
            return "refused by the node";
        case reply_status::pending:
            return "no answer yet";
    }
    return "unknown";
}

std::string mark_cell(cell_id cell, std::string_view name) {
    std::string marked = cell == 0 ? std::string() : std::to_string(cell) + '~';
    return marked.append(name);
}

std::optional<cell_name> split_cell(std::string_view marked) {
    const std::size_t end = marked.find('~');
    if (end == std::string_view::npos) return cell_name{0, marked};
    cell_name out{0, marked.substr(end + 1)};
    const auto [last, error] = std::from_chars(marked.data(), marked.data() + end, out.cell);
    // Each name has one spelling: no leading zeros, and no mark of cell 0.
    if (error != std::errc{} || last != marked.data() + end || marked.front() == '0') return std::nullopt;
    return out;
}

std::string describe_other_cell(std::string_view subject, cell_id named, cell_id own) {
    const std::string target = "cell " + std::to_string(named);
    return std::string(subject) + " names " + target + "; this gateway is of cell " + std::to_string(own) +
           ". Send the request to a gateway of " + target + ".";
}

void report_broken_invariant(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "fencegate: broken invariant, please report it: %s (%s:%d)\n", condition, file, line);
    std::abort();
}

}  // namespace lockcore
