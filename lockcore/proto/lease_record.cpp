#include <proto/lease_record.hpp>

#include <lockcore/encoding.hpp>

#include <algorithm>
#include <charconv>

namespace lockcore {
namespace {

constexpr std::int64_t year_9999_ms = 253'402'300'799'999;

std::string_view cut(std::string_view& rest, char until) {
    const std::size_t end = rest.find(until);
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return part;
}

template <class Number>
bool read(std::string_view text, Number& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc{} && end == text.data() + text.size() && !text.empty();
}

std::uint64_t fnv1a(std::uint64_t start, std::string_view text) {
    for (const char c : text)
        start = (start ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return (start ^ 0xffU) * 0x100000001b3U;  // a separator: no text contains this byte
}

/// Spreads the bits of a hash: FNV-1a gives similar values for texts that differ only in their last bytes.
std::uint64_t mix(std::uint64_t x) {
    x = (x ^ x >> 33U) * 0xff51afd7ed558ccdU;
    x = (x ^ x >> 33U) * 0xc4ceb9fe1a85ec53U;
    return x ^ x >> 33U;
}

}  // namespace

std::optional<lease_record> lease_record::parse(std::string_view text) {
    lease_record out;
    std::string_view head = cut(text, '\n');
    const auto attempt = nonce::parse(cut(head, ' '));
    std::uint64_t token = 0;
    std::int64_t granted_ms = 0, ttl_ms = 0, held_ms = 0;
    if (!attempt || !read(cut(head, ' '), token) || !read(cut(head, ' '), out.renewals) ||
        !read(cut(head, ' '), ttl_ms) || !read(cut(head, ' '), held_ms) || !read(cut(head, ' '), granted_ms) ||
        head.empty() || head.find(' ') != std::string_view::npos)
        return std::nullopt;
    if (granted_ms < 0 || granted_ms > year_9999_ms) return std::nullopt;  // wall_time could overflow
    out.attempt_id = *attempt;
    out.token = fencing_token{token};
    out.ttl = milliseconds{ttl_ms};
    out.held = milliseconds{held_ms};
    out.granted_at = wall_time{milliseconds{granted_ms}};
    out.keys = head;
    out.holder.principal = cut(text, '\n');
    out.holder.owner = cut(text, '\n');
    std::string_view names = cut(text, '\n');
    while (!names.empty()) {
        auto name = resource_name::parse(cut(names, ' '));
        if (!name) return std::nullopt;
        out.resources.push_back(std::move(*name));
    }
    const std::string_view holds = cut(text, '\1');
    if (std::ranges::count(holds, '\n') != 2) return std::nullopt;
    out.holds.add(holds);
    return out;
}

void lease_record::merge(const lease_record& other) {
    holds.add(other.holds);
    if (other.keys == keys || other.keys == "-") return;
    keys = keys == "-" ? other.keys : keys + ',' + other.keys;
}

std::string lease_tail(const lease_claims& claims, const lease_state& state) {
    std::string out = std::to_string(state.renewals);
    out += ' ';
    out += std::to_string(state.ttl.count());
    out += ' ';
    out += std::to_string(state.held.count());
    out += ' ';
    out += std::to_string(std::chrono::duration_cast<milliseconds>(claims.granted_at.time_since_epoch()).count());
    out += ' ';
    if (state.key.empty()) {
        out += '-';
    } else {
        out += state.key;
        out += ':';
        out += claims.hold.str();
    }
    out += '\n';
    out += claims.holder.principal;
    out += '\n';
    out += claims.holder.owner;
    out += '\n';
    if (claims.resources.size() > 1) {
        for (const resource_name& r : claims.resources) {
            if (&r != &claims.resources.front()) out += ' ';
            out += r.str();
        }
    }
    out += '\n';
    out += claims.hold.str();
    out += "\n\n";
    out += state.close_mark;
    if (!state.wake_mark.empty()) {
        out += '\1';
        out += state.wake_mark;
    }
    return out;
}

idempotency_digest::finding idempotency_digest::find_in(std::string_view keys) const {
    if (text.empty()) return {};
    const std::string_view wanted = text;
    while (!keys.empty()) {
        std::string_view entry = cut(keys, ',');
        const std::string_view key = cut(entry, ':');
        const auto hold = hold_id::parse(entry);
        if (!hold || key.size() != size || key.substr(0, caller_size) != wanted.substr(0, caller_size)) continue;
        return {key == wanted ? match::same : match::other_request, *hold};
    }
    return {};
}

idempotency_digest make_idempotency_digest(const acquire_request& request) {
    if (request.idempotency_key.empty()) return {};
    constexpr std::uint64_t start = 0xcbf29ce484222325U;
    const std::uint64_t caller = fnv1a(fnv1a(start, request.holder.principal), request.idempotency_key);
    std::uint64_t content = fnv1a(start, request.holder.owner);
    content = fnv1a(content, std::to_string(request.ttl.count()));
    content = fnv1a(content, request.kept ? "kept" : "");
    for (const resource_name& r : request.resources)
        content = fnv1a(content, r.str());
    std::string digits(idempotency_digest::size, '0');
    write_hex(mix(caller), std::span(digits).first(idempotency_digest::caller_size));
    write_hex(mix(content), std::span(digits).subspan(idempotency_digest::caller_size));
    return {std::move(digits)};
}

}  // namespace lockcore
