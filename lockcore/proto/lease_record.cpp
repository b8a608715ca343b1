#include <proto/lease_record.hpp>

#include <lockcore/config.hpp>
#include <lockcore/encoding.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockcore {
namespace {

/// Of the two ids of one hold only one is kept: the confirmed one, if it was added.
void add_id(std::vector<hold_id>& ids, const hold_id& id) {
    const hold_id tentative = id.tentative(), confirmed = id.confirmed();
    const auto same =
        std::ranges::find_if(ids, [&](const hold_id& known) { return known == tentative || known == confirmed; });
    if (same == ids.end()) {
        if (ids.size() < hold_ids_max) ids.push_back(id);
    } else if (id == id.confirmed()) {
        *same = id;
    }
}

void add_ids(std::vector<hold_id>& ids, std::string_view line) {
    for (std::size_t read = 0; !line.empty() && read < hold_ids_max; ++read) {
        const std::string_view word = line.substr(0, line.find(','));
        line.remove_prefix(std::min(word.size() + 1, line.size()));
        if (const auto id = hold_id::parse(word)) add_id(ids, *id);
    }
}

}  // namespace

void hold_view::add(std::string_view text) {
    text = text.substr(0, lease_bytes_max);
    const auto next_line = [&text] {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        return line;
    };
    add_ids(live_, next_line());
    add_ids(tombstones_, next_line());
    add_marks(text);
}

void hold_view::add(const hold_view& other) {
    for (const hold_id& id : other.live_)
        add_id(live_, id);
    for (const hold_id& id : other.tombstones_)
        add_id(tombstones_, id);
    add_marks(other.close_marks_);
}

void hold_view::add_marks(std::string_view marks) {
    constexpr std::size_t size = 2 * hold_id::size;
    for (; marks.size() >= size && close_marks_.size() < close_marks_max * size; marks.remove_prefix(size)) {
        const std::string_view mark = marks.substr(0, size);
        if (!nonce::parse(mark)) continue;
        bool known = false;
        for (std::size_t at = 0; at < close_marks_.size() && !known; at += size)
            known = std::string_view(close_marks_).substr(at, size) == mark;
        if (!known) close_marks_ += mark;
    }
}

std::string hold_view::text() const {
    std::string out;
    for (const hold_id& id : live_) {
        if (is_released(id)) continue;
        if (!out.empty()) out += ',';
        out += id.str();
    }
    out += '\n';
    for (const hold_id& id : tombstones_) {
        if (&id != &tombstones_.front()) out += ',';
        out += id.str();
    }
    out += '\n';
    out += close_marks_;
    return out;
}

std::size_t hold_view::count() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(live_, [this](const hold_id& id) { return !is_released(id); }));
}

bool hold_view::is_released(const hold_id& id) const {
    return std::ranges::any_of(tombstones_, [&id](const hold_id& x) { return x == id || x == id.confirmed(); });
}

namespace {

// As in redis/lease.lua: a lease with more keys than it can have is another writer's.
constexpr std::size_t keys_max = 8;
constexpr std::size_t keys_bytes_max = keys_max * (idempotency_digest::size + 1 + hold_id::size + 1) - 1;

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

void append_numbers(std::string& out, std::uint64_t renewals, milliseconds ttl, milliseconds held,
                    wall_time granted_at) {
    const auto granted_ms = std::chrono::duration_cast<milliseconds>(granted_at.time_since_epoch()).count();
    for (const std::int64_t number : {static_cast<std::int64_t>(renewals), std::int64_t{ttl.count()},
                                      std::int64_t{held.count()}, std::int64_t{granted_ms}}) {
        out += std::to_string(number);
        out += ' ';
    }
}

/// Appends the lines of principal, owner and resources; the last is empty if there is one and it is not shared.
void append_identity(std::string& out, const holder& holder, const std::vector<resource_name>& resources,
                     const std::vector<resource_name>& shared) {
    out += '\n';
    out += holder.principal;
    out += '\n';
    out += holder.owner;
    out += '\n';
    if (resources.size() > 1 || !shared.empty()) append_names(out, resources, shared);
    out += '\n';
}

/// Returns each of the entries once, and at most as many as a lease keeps, the newest ones; `-` if there are none.
std::string select_newest_keys(std::string_view keys) {
    std::vector<std::string_view> entries;
    while (!keys.empty()) {
        const std::string_view entry = cut(keys, ',');
        if (!entry.empty() && std::ranges::find(entries, entry) == entries.end()) entries.push_back(entry);
    }
    std::string out;
    for (std::size_t i = entries.size() - std::min(entries.size(), keys_max); i < entries.size(); ++i) {
        if (!out.empty()) out += ',';
        out += entries[i];
    }
    return out.empty() ? "-" : out;
}

}  // namespace

void append_names(std::string& out, const std::vector<resource_name>& resources,
                  const std::vector<resource_name>& shared) {
    for (const resource_name& r : resources) {
        if (&r != &resources.front()) out += resource_name::separator;
        out += r.str();
    }
    if (!resources.empty() && !shared.empty()) out += resource_name::separator;
    for (const resource_name& r : shared) {
        out += resource_name::separator;
        out += r.str();
    }
}

bool parse_names(std::string_view text, std::vector<resource_name>& resources, std::vector<resource_name>& shared) {
    bool in_shared = false;
    while (!text.empty()) {
        const std::string_view word = cut(text, resource_name::separator);
        if (word.empty() && !std::exchange(in_shared, true) && !text.empty()) continue;
        auto name = resource_name::parse(word);
        if (!name) return false;
        (in_shared ? shared : resources).push_back(std::move(*name));
    }
    return true;
}

lease_record lease_record::make_block(random_source& random, milliseconds ttl) {
    lease_record block;
    block.ttl = ttl;
    block.token = fencing_token{1};  // 0 is what a node answers of a value that is no lease
    const std::uint64_t high = random.next();
    block.attempt_id = nonce::from_bits(high, random.next());
    block.holds.add(hold_id::of_grant(block.attempt_id).str());
    return block;
}

std::optional<lease_record> lease_record::parse(std::string_view text) {
    if (text.size() > lease_bytes_max) return std::nullopt;
    lease_record out;
    std::string_view head = cut(text, '\n');
    const auto attempt = nonce::parse(cut(head, ' '));
    std::uint64_t token = 0;
    std::string_view numbers = cut(head, ' ');
    const bool has_token = numbers.find(':') != std::string_view::npos;
    std::int64_t granted_ms = 0, ttl_ms = 0, held_ms = 0;
    if (!attempt || !read(cut(numbers, ':'), out.stamp) || (has_token && !read(numbers, token)) ||
        !read(cut(head, ' '), out.renewals) || !read(cut(head, ' '), ttl_ms) || !read(cut(head, ' '), held_ms) ||
        !read(cut(head, ' '), granted_ms) || head.empty() || head.size() > keys_bytes_max ||
        head.find(' ') != std::string_view::npos)
        return std::nullopt;
    const auto granted_at = to_wall_time(granted_ms);
    if (!granted_at || limit_foreign_time(ttl_ms).count() != ttl_ms || limit_foreign_time(held_ms).count() != held_ms)
        return std::nullopt;
    if (!has_token) token = out.stamp;
    if (token > fencing_token_max || out.stamp > fencing_token_max || out.renewals > renewals_counted)
        return std::nullopt;
    out.attempt_id = *attempt;
    out.token = fencing_token{token};
    out.ttl = milliseconds{ttl_ms};
    out.held = milliseconds{held_ms};
    out.granted_at = *granted_at;
    out.keys = head;
    out.holder.principal = cut(text, '\n');
    out.holder.owner = cut(text, '\n');
    if (!parse_names(cut(text, '\n'), out.resources, out.shared)) return std::nullopt;
    const std::string_view holds = cut(text, '\1');
    if (std::ranges::count(holds, '\n') != 2) return std::nullopt;
    out.holds.add(holds);
    if (out.holds.close_marks().size() != holds.size() - holds.rfind('\n') - 1) return std::nullopt;
    return out;
}

bool lease_record::is_same_lease(const lease_record& other) const {
    return attempt_id == other.attempt_id && granted_at == other.granted_at && holder == other.holder &&
           resources == other.resources && shared == other.shared;
}

void lease_record::merge(const lease_record& other) {
    holds.add(other.holds);
    if (other.keys == keys || other.keys == "-") return;
    keys = keys == "-" ? other.keys : keys + ',' + other.keys;
    if (keys.size() > nodes_max * (keys_bytes_max + 1)) keys = select_newest_keys(keys);
}

std::string lease_record::format() const {
    std::string out(attempt_id.str());
    out += ' ';
    out += std::to_string(stamp);
    if (value_of(token) != stamp) {
        out += ':';
        out += std::to_string(value_of(token));
    }
    out += ' ';
    append_numbers(out, renewals, ttl, held, granted_at);
    out += select_newest_keys(keys);
    append_identity(out, holder, resources, shared);
    out += holds.text();
    return out;
}

bool has_resources_of(const lease_record& lease, const acquire_request& request) {
    const bool is_single = request.resources.size() == 1 && request.shared.empty();
    return lease.shared == request.shared &&
           (is_single ? lease.resources.empty() : lease.resources == request.resources);
}

std::string lease_tail(const lease_claims& claims, const lease_state& state) {
    std::string out;
    append_numbers(out, state.renewals, state.ttl, state.held, claims.granted_at);
    if (state.key.empty()) {
        out += '-';
    } else {
        out += state.key;
        out += ':';
        out += claims.hold.str();
    }
    append_identity(out, claims.holder, claims.resources, claims.shared);
    out += claims.hold.str();
    out += "\n\n";
    out += state.close_marks;
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
        const std::string_view entry = cut(keys, ',');
        const std::string_view key = entry.substr(0, size);
        const bool is_entry = entry.size() > size && entry[size] == ':';
        const auto hold = hold_id::parse(is_entry ? entry.substr(size + 1) : std::string_view{});
        if (!hold || key.substr(0, caller_size) != wanted.substr(0, caller_size)) continue;
        return {key == wanted ? match::same : match::other_request, *hold};
    }
    return {};
}

namespace {

/// What distinguishes a shared name: no name has this character.
constexpr std::string_view shared_mark = "\t";

}  // namespace

idempotency_digest make_idempotency_digest(const acquire_request& request) {
    if (request.idempotency_key.empty()) return {};
    constexpr std::uint64_t start = 0xcbf29ce484222325U;
    const std::uint64_t caller = fnv1a(fnv1a(start, request.holder.principal), request.idempotency_key);
    std::uint64_t content = fnv1a(start, std::to_string(request.ttl.count()));
    content = fnv1a(content, request.kept ? "kept" : "");
    for (const resource_name& r : request.resources)
        content = fnv1a(content, r.str());
    for (const resource_name& r : request.shared)
        content = fnv1a(fnv1a(content, shared_mark), r.str());
    std::string digits(idempotency_digest::size, '0');
    write_hex(mix(caller), std::span(digits).first(idempotency_digest::caller_size));
    write_hex(mix(content), std::span(digits).subspan(idempotency_digest::caller_size));
    return {std::move(digits)};
}

std::string name_request(const acquire_request& request) {
    if (request.idempotency_key.empty()) return {};
    std::string out = request.idempotency_key + '\n' + request.holder.principal;
    for (const resource_name& r : request.resources)
        out += '\n' + r.str();
    for (const resource_name& r : request.shared)
        out.append(1, '\n').append(shared_mark).append(r.str());
    return out;
}

}  // namespace lockcore
