#include <gateway/config/secrets.hpp>
#include <gateway/pg/history/history_digest.hpp>

#include <lockcore/encoding.hpp>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

constexpr std::string_view signature_member = ",\"signature\":\"";
constexpr std::size_t signature_bytes = 64;
/// Digests that are read at once to find the last one that a known key has signed; each has up to 2 MiB.
constexpr std::int64_t entries_per_page = 10;

using digest_context = std::unique_ptr<EVP_MD_CTX, digest_deleter>;

const char* name_of(digested_table table) {
    return table == digested_table::history ? "fencing.history" : "fencing.row_change";
}

json::object render_range(const digest_range& range) {
    json::object weeks;
    for (const auto& [week, part] : range.parts)
        weeks[week] =
            json::object{{"rows", part.rows}, {"sha256", part.sha256}, {"erasable_sha256", part.erasable_sha256}};
    return {{"after", range.after}, {"to", range.to}, {"weeks", std::move(weeks)}};
}

digest_range parse_range(const json::value& value) {
    digest_range out;
    out.after = value.at("after").as_int64();
    out.to = value.at("to").as_int64();
    for (const auto& [week, part] : value.at("weeks").as_object())
        out.parts[std::string(week)] = {part.at("rows").as_int64(), std::string(part.at("sha256").as_string()),
                                        std::string(part.at("erasable_sha256").as_string())};
    return out;
}

/// Returns the end of the ids of the next digest: there are at most ids_max between its first row and its
/// end.
std::int64_t end_of_range(session& session, digested_table table, std::int64_t after, std::int64_t last,
                          std::int64_t ids_max) {
    if (last - after <= ids_max) return std::max(after, last);
    const std::string from = std::string("from ") + name_of(table) + " where id > $1::bigint and id <= $2::bigint";
    const std::string near_end = std::to_string(after + ids_max);
    const bool has_rows =
        session.exec("select exists (select " + from + ")", {std::to_string(after), near_end})[0][0].as<bool>();
    if (has_rows) return after + ids_max;
    const auto first = session.exec("select min(id) " + from, {near_end, std::to_string(last)});
    if (first[0][0].is_null()) return last;
    return std::min(last, first[0][0].as<std::int64_t>() - 1 + ids_max);
}

digest_range digest_rows(session& session, digested_table table, std::int64_t after, std::int64_t last,
                         const digest_source& source) {
    digest_range out;
    out.after = after;
    out.to = end_of_range(session, table, after, last, source.ids_max);
    if (out.to > out.after) out.parts = hash_rows(session, table, out.after, out.to, source.salts);
    return out;
}

std::vector<signed_digest> digests_of(const pqxx::result& rows) {
    std::vector<signed_digest> out;
    for (const auto& row : rows)
        out.push_back({row[0].c_str(), row[1].c_str(), {row[2].c_str(), row[3].c_str()}});
    return out;
}

/// Fills in what all digests have, of the next one. Out: the one before.
last_digest begin_entry(session& session, const digest_source& source, digest_entry& next) {
    next.number = session.exec("select fencing.begin_digest()", {})[0][0].as<std::int64_t>();
    const last_digest before = find_last_digest(session, source.keys);
    if (before.entry) next.previous = before.sha256;
    next.made_at = source.made_at;
    next.gateway = source.gateway;
    next.key = key_id_of(*source.keys.front());
    return before;
}

signed_digest sign_entry(const digest_entry& entry, const digest_source& source) {
    signed_digest out{render_digest(entry), "", source.salts};
    out.signature = sign_text(*source.keys.front(), out.entry);
    return out;
}

/// Makes the next digest in the transaction that is open.
made_digest append_digest(session& session, const digest_source& source) {
    made_digest out;
    digest_entry next;
    const last_digest before = begin_entry(session, source, next);
    out.unsigned_entries = before.unsigned_entries;
    if (before.entry) {
        next.history.after = before.entry->history_end();
        next.changes.after = before.entry->changes_end();
    }
    next.history = digest_rows(session, digested_table::history, next.history.after, source.history_to, source);
    next.changes = digest_rows(session, digested_table::changes, next.changes.after, source.changes_to, source);
    out.complete = next.history.to >= source.history_to && next.changes.to >= source.changes_to;
    if (next.history.to == next.history.after && next.changes.to == next.changes.after) return out;
    out.made = sign_entry(next, source);
    session.exec(
        "select fencing.append_digest($1::bigint, $2::text, $3::text, $4::text, $5::text)",
        {std::to_string(next.number), out.made->entry, out.made->signature, source.salts.fixed, source.salts.erasable});
    return out;
}

}  // namespace

std::string render_digest(const digest_entry& entry) {
    json::object out{{"number", entry.number},
                     {"previous", entry.previous},
                     {"made_at", entry.made_at},
                     {"gateway", entry.gateway},
                     {"key", entry.key},
                     {"history", render_range(entry.history)},
                     {"changes", render_range(entry.changes)}};
    if (const auto& replaces = entry.replaces)
        out["replaces"] = json::object{{"number", replaces->number},           {"pseudonym", replaces->pseudonym},
                                       {"reason", replaces->reason},           {"principal", replaces->principal},
                                       {"history_end", replaces->history_end}, {"changes_end", replaces->changes_end}};
    return json::serialize(out);
}

std::optional<digest_entry> parse_digest(std::string_view entry) {
    try {
        const json::value read = json::parse(entry);
        const auto text = [&read](const char* name) { return std::string(read.at(name).as_string()); };
        digest_entry out;
        out.number = read.at("number").as_int64();
        out.previous = text("previous");
        out.made_at = text("made_at");
        out.gateway = text("gateway");
        out.key = text("key");
        out.history = parse_range(read.at("history"));
        out.changes = parse_range(read.at("changes"));
        if (const auto* replaces = read.as_object().if_contains("replaces")) {
            const auto part = [&](const char* name) { return std::string(replaces->at(name).as_string()); };
            out.replaces = {replaces->at("number").as_int64(),
                            part("pseudonym"),
                            part("reason"),
                            part("principal"),
                            replaces->at("history_end").as_int64(),
                            replaces->at("changes_end").as_int64()};
        }
        return out;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

std::string line_of(const signed_digest& digest) {
    const std::size_t end = digest.entry.empty() ? 0 : digest.entry.size() - 1;
    return digest.entry.substr(0, end) + std::string(signature_member) + digest.signature + "\"}";
}

std::optional<signed_digest> parse_line(std::string_view line) {
    const auto at = line.rfind(signature_member);
    if (at == std::string_view::npos || !line.ends_with("\"}")) return std::nullopt;
    signed_digest out;
    out.entry = std::string(line.substr(0, at)) + "}";
    const std::size_t begin = at + signature_member.size();
    out.signature = line.substr(begin, line.size() - 2 - begin);
    return out;
}

std::string render_proof(const export_proof& proof) {
    return json::serialize(json::object{{"export", proof.items},
                                        {"query", proof.query},
                                        {"principal", proof.principal},
                                        {"made_at", proof.made_at},
                                        {"gateway", proof.gateway},
                                        {"key", proof.key},
                                        {"count", proof.count},
                                        {"first_id", proof.first_id},
                                        {"last_id", proof.last_id},
                                        {"sha256", proof.sha256}});
}

std::optional<export_proof> parse_proof(std::string_view text) {
    try {
        const json::value read = json::parse(text);
        const auto member = [&read](const char* name) { return std::string(read.at(name).as_string()); };
        export_proof out;
        out.items = member("export");
        out.query = member("query");
        out.principal = member("principal");
        out.made_at = member("made_at");
        out.gateway = member("gateway");
        out.key = member("key");
        out.count = read.at("count").as_int64();
        out.first_id = read.at("first_id").as_int64();
        out.last_id = read.at("last_id").as_int64();
        out.sha256 = member("sha256");
        if (render_proof(out) != text) return std::nullopt;
        return out;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

text_hash::text_hash() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1)
        throw std::runtime_error("OpenSSL has no SHA-256");
}

void text_hash::add(std::string_view text) {
    EVP_DigestUpdate(context_.get(), text.data(), text.size());
}

std::string text_hash::finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
    return lockcore::to_hex(std::as_bytes(std::span(bytes).first(size)));
}

std::string key_id_of(EVP_PKEY& key) {
    unsigned char* bytes = nullptr;
    const int size = i2d_PUBKEY(&key, &bytes);
    if (size <= 0) throw std::runtime_error("OpenSSL can't write the public key");
    const std::string hash = sha256_hex({reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size)});
    OPENSSL_free(bytes);
    return hash.substr(0, 16);
}

std::string sign_text(EVP_PKEY& key, std::string_view text) {
    std::array<unsigned char, signature_bytes> out{};
    std::size_t size = out.size();
    const digest_context context(EVP_MD_CTX_new());
    if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, &key) != 1 ||
        EVP_DigestSign(context.get(), out.data(), &size, reinterpret_cast<const unsigned char*>(text.data()),
                       text.size()) != 1)
        throw std::runtime_error("the key can't sign digests");
    return lockcore::to_hex(std::as_bytes(std::span(out).first(size)));
}

bool is_signed(const std::vector<pkey_handle>& keys, std::string_view text, std::string_view signature) {
    std::array<unsigned char, signature_bytes> bytes{};
    if (!lockcore::from_hex(signature, std::as_writable_bytes(std::span(bytes)))) return false;
    const bool found = std::ranges::any_of(keys, [&](const pkey_handle& key) {
        const digest_context context(EVP_MD_CTX_new());
        return context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
               EVP_DigestVerify(context.get(), bytes.data(), bytes.size(),
                                reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
    });
    ERR_clear_error();  // of the keys that have not signed it
    return found;
}

digest_parts hash_rows(session& session, digested_table table, std::int64_t after, std::int64_t to,
                       const digest_salts& salts) {
    // The columns in the order in which they are hashed, after id and the time in seconds since 1970; those from
    // which names can be erased last.
    const bool is_history = table == digested_table::history;
    const std::string columns = is_history ? "event, resource, fencing_token, last_fencing_token, trace_id, write_id, "
                                             "owner, principal, detail"
                                           : "relation, operation, resource, fencing_token, write_id, direct, "
                                             "row_key, old, new, principal, application";
    constexpr int first_erasable = 9;  // after the week, id and the time, and six others of either table
    struct hashes {
        std::int64_t rows = 0;
        text_hash fixed, erasable;
    };
    std::map<std::string, hashes> weeks;
    const auto add = [&](const answer_rows& row) {
        const auto [found, is_new] = weeks.try_emplace(row.text(0, 0));
        if (is_new) {
            found->second.fixed.add(salts.fixed);
            found->second.erasable.add(salts.erasable);
        }
        ++found->second.rows;
        for (int column = 1; column < row.columns(); ++column) {
            text_hash& hash = column < first_erasable ? found->second.fixed : found->second.erasable;
            if (row.is_null(0, column)) {
                hash.add("-,");
            } else {
                const auto value = row.bytes(0, column);
                hash.add(std::to_string(value.size()) + ":");
                hash.add(value);
                hash.add(",");
            }
        }
    };
    session.read_each(
        "select coalesce(to_char(date_trunc('week', at, 'UTC') at time zone 'UTC', 'YYYYMMDD'), ''), id, "
        "extract(epoch from at), " +
            columns + " from " + name_of(table) + " where id > $1::bigint and id <= $2::bigint order by id, at",
        {std::to_string(after), std::to_string(to)}, add);
    digest_parts out;
    for (auto& [week, counted] : weeks)
        out[week] = {counted.rows, counted.fixed.finish(), counted.erasable.finish()};
    return out;
}

std::vector<signed_digest> read_digests(session& session, std::int64_t after, std::size_t limit) {
    return digests_of(
        session.exec("select entry, signature, salt, erasable_salt from fencing.history_digest where number > "
                     "$1::bigint order by number "
                     "limit $2::bigint",
                     {std::to_string(after), std::to_string(limit)}));
}

digest_page read_digest_page(session& session, const digest_query& query) {
    const std::int64_t start = query.ascending ? 0 : std::numeric_limits<std::int64_t>::max();
    const auto rows = session.exec(
        std::string("select entry, signature, salt, erasable_salt, number from fencing.history_digest where number ") +
            (query.ascending ? "> $1::bigint order by number" : "< $1::bigint order by number desc") +
            " limit $2::bigint",
        {std::to_string(query.after ? query.after->id : start), std::to_string(query.limit + 1)});
    digest_page page;
    page.more = static_cast<std::size_t>(rows.size()) > query.limit;
    for (const auto& digest : digests_of(rows)) {
        if (page.items.size() == query.limit) break;
        const auto number = rows[static_cast<pqxx::result::size_type>(page.items.size())][4].as<std::int64_t>();
        page.items.push_back({number, line_of(digest)});
    }
    return page;
}

last_digest find_last_digest(session& session, const std::vector<pkey_handle>& keys) {
    last_digest out;
    for (std::int64_t before = std::numeric_limits<std::int64_t>::max(); out.unsigned_entries < unsigned_entries_max;) {
        const auto rows = session.exec(
            "select entry, signature, (extract(epoch from clock_timestamp() - made_at) * 1000)::bigint, number "
            "from fencing.history_digest where number < $1::bigint order by number desc limit $2::bigint",
            {std::to_string(before), std::to_string(entries_per_page)});
        if (rows.empty()) return out;
        for (const auto& row : rows) {
            const std::string text = row[0].c_str();
            before = row[3].as<std::int64_t>();
            out.entry = is_signed(keys, text, row[1].c_str()) ? parse_digest(text) : std::nullopt;
            if (out.entry) {
                out.sha256 = sha256_hex(text);
                out.age_ms = row[2].as<std::int64_t>();
                return out;
            }
            ++out.unsigned_entries;
        }
    }
    throw std::runtime_error("none of the newest " + std::to_string(unsigned_entries_max) +
                             " digests is signed by a key of this gateway");
}

digest_tail read_digest_tail(session& session) {
    const auto rows = session.exec(
        "select history_id, change_id, w from fencing.digest_tail() left join unnest(writers) as w on true", {});
    digest_tail out;
    out.history.last_id = rows[0][0].as<std::int64_t>();
    out.changes.last_id = rows[0][1].as<std::int64_t>();
    for (const auto& row : rows) {
        if (!row[2].is_null()) out.history.writers.emplace_back(row[2].c_str());
    }
    out.changes.writers = out.history.writers;
    return out;
}

void append_replacement(session& session, const digest_source& source, const digest_entry& replaced,
                        digest_replacement reason) {
    digest_entry next;
    const last_digest before = begin_entry(session, source, next);
    reason.history_end = before.entry ? before.entry->history_end() : 0;
    reason.changes_end = before.entry ? before.entry->changes_end() : 0;
    next.history = {replaced.history.after, replaced.history.to, {}};
    next.changes = {replaced.changes.after, replaced.changes.to, {}};
    for (auto& [range, table] :
         {std::pair(&next.history, digested_table::history), std::pair(&next.changes, digested_table::changes)})
        range->parts = hash_rows(session, table, range->after, range->to, source.salts);
    next.replaces = std::move(reason);
    const signed_digest made = sign_entry(next, source);
    session.exec("select fencing.replace_digest($1::bigint, $2::text, $3::text, $4::text, $5::text, $6::bigint)",
                 {std::to_string(next.number), made.entry, made.signature, source.salts.fixed, source.salts.erasable,
                  std::to_string(replaced.number)});
}

made_digest make_digest(session& session, const digest_source& source) {
    session.command("begin");
    try {
        auto out = append_digest(session, source);
        session.command("commit");
        return out;
    } catch (const session_lost&) {
        throw;
    } catch (...) {
        session.command("rollback");
        throw;
    }
}

}  // namespace fencegate::pg
