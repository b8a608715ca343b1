#include <sim/redis/redis_server.hpp>

#include <algorithm>
#include <cctype>
#include <optional>

// The commands about keys. redis_server_admin.cpp has the others.

namespace sim {
namespace {

using kind = redis_reply::kind;

constexpr std::string_view wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";

void fail(redis_reply& out, std::string_view text) {
    out.set(kind::error, text);
}

/// Parses an integer as Redis does: no sign but '-', no leading zeros, nothing after it.
std::optional<std::int64_t> to_integer(std::string_view text) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{} || end != text.data() + text.size() || text == "-0") return std::nullopt;
    const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
    if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
    return n;
}

bool is_word(std::string_view text, std::string_view upper) {
    return std::equal(text.begin(), text.end(), upper.begin(), upper.end(),
                      [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; });
}

/// Matches a glob pattern of Redis: * ? [a-z] [^…] and \.
bool matches(std::string_view pattern, std::string_view text) {
    while (!pattern.empty()) {
        const char p = pattern.front();
        if (p == '*') {
            for (std::size_t skipped = 0; skipped <= text.size(); ++skipped) {
                if (matches(pattern.substr(1), text.substr(skipped))) return true;
            }
            return false;
        }
        if (text.empty()) return false;
        if (p == '[') {
            const std::size_t end = std::min(pattern.find(']', 1), pattern.size());
            std::string_view set = pattern.substr(1, end - 1);
            const bool negated = set.starts_with('^');
            if (negated) set.remove_prefix(1);
            bool found = false;
            while (!set.empty()) {
                if (set.size() >= 3 && set[1] == '-') {
                    found = found || (text.front() >= set[0] && text.front() <= set[2]);
                    set.remove_prefix(3);
                    continue;
                }
                if (set.front() == '\\' && set.size() > 1) set.remove_prefix(1);
                found = found || set.front() == text.front();
                set.remove_prefix(1);
            }
            if (found == negated) return false;
            pattern.remove_prefix(std::min(end + 1, pattern.size()));
            text.remove_prefix(1);
            continue;
        }
        if (p == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
        if (p != '?' && pattern.front() != text.front()) return false;
        pattern.remove_prefix(1);
        text.remove_prefix(1);
    }
    return text.empty();
}

/// The order of SCAN: that of a hash, so that the keys that are there all the time are returned by one search.
std::uint64_t position_of(std::string_view key) {
    std::uint64_t hash = 14695981039346656037ULL;
    for (const char c : key)
        hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash >> 2 | 1;
}

}  // namespace

void redis_server::set_clock(std::chrono::microseconds now) {
    clock_ = now;
    now_ = std::chrono::floor<milliseconds>(now);
}

redis_value* redis_server::find_string(std::string_view key, redis_reply& out) {
    redis_value* value = data.find(key, now_);
    if (value && value->is_hash) {
        fail(out, wrong_type);
        return nullptr;
    }
    if (!value) out.type = kind::nil;
    return value;
}

redis_value* redis_server::find_hash(std::string_view key, redis_reply& out) {
    redis_value* value = data.find(key, now_);
    if (value && !value->is_hash) {
        fail(out, wrong_type);
        return nullptr;
    }
    if (!value) out.type = kind::nil;
    return value;
}

redis_value* redis_server::open_hash(std::string_view key, redis_reply& out) {
    redis_value* value = find_hash(key, out);
    if (out.is_error()) return nullptr;
    will_write(key);
    if (!value) {
        value = &data.create(key);
        value->is_hash = true;
    }
    return value;
}

void redis_server::get(const redis_arguments& a, redis_reply& out) {
    if (const redis_value* value = find_string(a[1], out)) out.set(kind::text, value->text);
}

void redis_server::getrange(const redis_arguments& a, redis_reply& out) {
    const auto first = to_integer(a[2]), last = to_integer(a[3]);
    if (!first || !last) return fail(out, "ERR value is not an integer or out of range");
    const redis_value* value = find_string(a[1], out);
    if (out.is_error()) return;
    const auto size = value ? static_cast<std::int64_t>(value->text.size()) : 0;
    const std::int64_t begin = std::max<std::int64_t>(*first < 0 ? *first + size : *first, 0);
    const std::int64_t end = std::min(*last < 0 ? *last + size : *last, size - 1);
    if (size == 0 || begin > end) return out.set(kind::text, {});
    out.set(kind::text, std::string_view(value->text)
                            .substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin + 1)));
}

void redis_server::set(const redis_arguments& a, redis_reply& out) {
    std::optional<milliseconds> ttl;
    bool keeps_ttl = false, only_new = false, only_known = false;
    for (std::size_t i = 3; i < a.size(); ++i) {
        if (is_word(a[i], "KEEPTTL") && !ttl) {
            keeps_ttl = true;
        } else if (is_word(a[i], "NX") && !only_known) {
            only_new = true;
        } else if (is_word(a[i], "XX") && !only_new) {
            only_known = true;
        } else if (is_word(a[i], "PX") && !keeps_ttl && !ttl && i + 1 < a.size()) {
            const auto ms = to_integer(a[++i]);
            if (!ms) return fail(out, "ERR value is not an integer or out of range");
            if (*ms <= 0) return fail(out, "ERR invalid expire time in 'set' command");
            ttl = milliseconds{*ms};
        } else {
            return fail(out, "ERR syntax error");
        }
    }
    redis_value* value = data.find(a[1], now_);
    if ((value && only_new) || (!value && only_known)) {
        out.type = kind::nil;
        return;
    }
    will_write(a[1]);
    if (!value) value = &data.create(a[1]);
    value->is_hash = false;
    value->fields.clear();
    value->text.assign(a[2]);
    if (!keeps_ttl) value->expires_at = ttl ? now_ + *ttl : redis_value::never;
    out.set(kind::status, "OK");
}

void redis_server::append(const redis_arguments& a, redis_reply& out) {
    redis_value* value = find_string(a[1], out);
    if (out.is_error()) return;
    will_write(a[1]);
    if (!value) value = &data.create(a[1]);
    value->text += a[2];
    out.set_number(static_cast<std::int64_t>(value->text.size()));
}

void redis_server::del(const redis_arguments& a, redis_reply& out) {
    std::int64_t removed = 0;
    for (std::size_t i = 1; i < a.size(); ++i) {
        if (!data.find(a[i], now_)) continue;
        will_write(a[i]);
        data.erase(a[i]);
        ++removed;
    }
    out.set_number(removed);
}

void redis_server::exists(const redis_arguments& a, redis_reply& out) {
    out.set_number(
        std::count_if(a.begin() + 1, a.end(), [this](std::string_view key) { return data.find(key, now_); }));
}

void redis_server::type(const redis_arguments& a, redis_reply& out) {
    const redis_value* value = data.find(a[1], now_);
    out.set(kind::status, !value ? "none" : value->is_hash ? "hash" : "string");
}

void redis_server::pttl(const redis_arguments& a, redis_reply& out) {
    const redis_value* value = data.find(a[1], now_);
    out.set_number(!value ? -2 : value->expires_at == redis_value::never ? -1 : (value->expires_at - now_).count());
}

void redis_server::pexpire(const redis_arguments& a, redis_reply& out) {
    const auto ms = to_integer(a[2]);
    if (!ms) return fail(out, "ERR value is not an integer or out of range");
    redis_value* value = data.find(a[1], now_);
    out.set_number(value ? 1 : 0);
    if (!value) return;
    will_write(a[1]);
    if (*ms <= 0) return data.erase(a[1]);
    value->expires_at = now_ + milliseconds{*ms};
}

void redis_server::persist(const redis_arguments& a, redis_reply& out) {
    redis_value* value = data.find(a[1], now_);
    const bool changes = value && value->expires_at != redis_value::never;
    if (changes) value->expires_at = redis_value::never;
    out.set_number(changes ? 1 : 0);
}

void redis_server::hget(const redis_arguments& a, redis_reply& out) {
    redis_value* hash = find_hash(a[1], out);
    if (!hash) return;
    out.type = kind::nil;
    if (const std::string* value = hash->find_field(a[2])) out.set(kind::text, *value);
}

void redis_server::hmget(const redis_arguments& a, redis_reply& out) {
    redis_value* hash = find_hash(a[1], out);
    if (out.is_error()) return;
    out.type = kind::array;
    out.elements.resize(a.size() - 2);
    for (std::size_t i = 2; i < a.size(); ++i) {
        const std::string* value = hash ? hash->find_field(a[i]) : nullptr;
        out.elements[i - 2].type = kind::nil;
        if (value) out.elements[i - 2].set(kind::text, *value);
    }
}

void redis_server::hgetall(const redis_arguments& a, redis_reply& out) {
    redis_value* hash = find_hash(a[1], out);
    if (out.is_error()) return;
    out.type = kind::array;
    out.elements.clear();
    for (std::size_t i = 0; hash && i < hash->fields.size(); ++i) {
        out.elements.emplace_back().set(kind::text, hash->fields[i].first);
        out.elements.emplace_back().set(kind::text, hash->fields[i].second);
    }
}

void redis_server::hset(const redis_arguments& a, redis_reply& out) {
    if (a.size() % 2 != 0) return fail(out, "ERR wrong number of arguments for 'hset' command");
    redis_value* hash = open_hash(a[1], out);
    if (!hash) return;
    std::int64_t added = 0;
    for (std::size_t i = 2; i + 1 < a.size(); i += 2) {
        if (std::string* value = hash->find_field(a[i])) {
            value->assign(a[i + 1]);
        } else {
            hash->fields.emplace_back(a[i], a[i + 1]);
            ++added;
        }
    }
    out.set_number(added);
}

void redis_server::hsetnx(const redis_arguments& a, redis_reply& out) {
    redis_value* hash = open_hash(a[1], out);
    if (!hash) return;
    const bool is_new = !hash->find_field(a[2]);
    if (is_new) hash->fields.emplace_back(a[2], a[3]);
    out.set_number(is_new ? 1 : 0);
}

void redis_server::hdel(const redis_arguments& a, redis_reply& out) {
    redis_value* hash = find_hash(a[1], out);
    if (out.is_error()) return;
    out.set_number(0);
    if (!hash) return;
    will_write(a[1]);
    std::int64_t removed = 0;
    for (std::size_t i = 2; i < a.size(); ++i)
        removed += static_cast<std::int64_t>(
            std::erase_if(hash->fields, [&](const auto& field) { return field.first == a[i]; }));
    if (hash->fields.empty()) data.erase(a[1]);
    out.set_number(removed);
}

void redis_server::scan(const redis_arguments& a, redis_reply& out) {
    const auto cursor = to_integer(a[1]);
    if (!cursor || *cursor < 0) return fail(out, "ERR invalid cursor");
    std::string_view pattern = "*";
    std::size_t count = 10;
    for (std::size_t i = 2; i < a.size(); i += 2) {
        const auto number = i + 1 < a.size() ? to_integer(a[i + 1]) : std::nullopt;
        if (i + 1 < a.size() && is_word(a[i], "MATCH")) {
            pattern = a[i + 1];
        } else if (number && *number > 0 && is_word(a[i], "COUNT")) {
            count = static_cast<std::size_t>(*number);
        } else {
            return fail(out, "ERR syntax error");
        }
    }
    data.erase_expired(now_);
    std::vector<std::pair<std::uint64_t, std::string_view>> rest;
    for (const auto& [key, value] : data.keys()) {
        if (position_of(key) > static_cast<std::uint64_t>(*cursor)) rest.emplace_back(position_of(key), key);
    }
    std::sort(rest.begin(), rest.end());
    const bool is_last = rest.size() <= count;
    if (!is_last) rest.resize(count);
    out.type = kind::array;
    out.elements.resize(2);
    out.elements[0].set(kind::text, is_last ? "0" : std::to_string(rest.back().first));
    out.elements[1].type = kind::array;
    out.elements[1].elements.clear();
    for (const auto& [position, key] : rest) {
        if (matches(pattern, key)) out.elements[1].elements.emplace_back().set(kind::text, key);
    }
}

void redis_server::publish(const redis_arguments& a, redis_reply& out) {
    out.set_number(on_publish ? on_publish(a[1], a[2]) : 0);
}

void redis_server::time(const redis_arguments&, redis_reply& out) {
    out.type = kind::array;
    out.elements.resize(2);
    out.elements[0].set(kind::text, std::to_string(clock_.count() / 1'000'000));
    out.elements[1].set(kind::text, std::to_string(clock_.count() % 1'000'000));
}

}  // namespace sim
