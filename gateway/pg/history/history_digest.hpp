#pragma once

#include <gateway/config/pem.hpp>
#include <gateway/domain/history_item.hpp>
#include <gateway/pg/connection/session.hpp>

#include <openssl/evp.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Rows with one SHA-256 for them all, and another one of the columns from which names can be erased.
struct digest_part {
    std::int64_t rows = 0;
    std::string sha256, erasable_sha256;
    friend bool operator==(const digest_part&, const digest_part&) = default;
};

/// The rows of a table by the week of their time (YYYYMMDD of its Monday, UTC; empty for an infinite time): a partition
/// that is dropped has the rows of one week.
using digest_parts = std::map<std::string, digest_part>;

/// The rows of a table with ids above `after` and up to `to`.
struct digest_range {
    std::int64_t after = 0, to = 0;
    digest_parts parts;
};

/// Why a digest replaces another one.
struct digest_replacement {
    std::int64_t number = 0;  ///< Of the digest whose rows it has, after names in them were erased.
    std::string pseudonym, reason, principal;
    std::int64_t history_end = 0, changes_end = 0;  ///< The last ids that the digests before it cover.
};

/// What a gateway signs: no later row can have an id of its ranges.
struct digest_entry {
    std::int64_t number = 0;  ///< From 1 on.
    std::string previous;     ///< SHA-256 of the text of the entry before; empty for the first one.
    std::string made_at;      ///< By the gateway's clock, RFC 3339.
    std::string gateway;
    std::string key;  ///< key_id_of() the signing key.
    digest_range history, changes;
    std::optional<digest_replacement> replaces;

    /// Return the last ids that this digest and those before it cover.
    std::int64_t history_end() const { return replaces ? replaces->history_end : history.to; }
    std::int64_t changes_end() const { return replaces ? replaces->changes_end : changes.to; }
};

/// What is hashed before the rows.
struct digest_salts {
    std::string fixed, erasable;  ///< The second one is empty once another digest replaces this one.
    friend bool operator==(const digest_salts&, const digest_salts&) = default;
};

/// An entry as it is stored.
struct signed_digest {
    std::string entry;  ///< The text that is signed.
    std::string signature;
    digest_salts salts;  ///< Empty if it was read from a line.
    friend bool operator==(const signed_digest&, const signed_digest&) = default;
};

/// Returns the text that is signed, a JSON object. A pure function, as the next ones.
std::string render_digest(const digest_entry& entry);
/// Out: empty if render_digest did not make the text.
std::optional<digest_entry> parse_digest(std::string_view entry);
/// Returns the entry with its signature as its last member, `signature`.
std::string line_of(const signed_digest& digest);
/// Out: empty if line_of did not make the text.
std::optional<signed_digest> parse_line(std::string_view line);

/// What a gateway signs at the end of an export, as the last line of it (line_of).
struct export_proof {
    std::string items;      ///< `history` or `changes`.
    std::string query;      ///< That of the request: which items the export has.
    std::string principal;  ///< The caller, whose rights decide what items show.
    std::string made_at;    ///< By the gateway's clock when the export ended, RFC 3339.
    std::string gateway, key;
    std::int64_t count = 0;                  ///< Lines before this one.
    std::int64_t first_id = 0, last_id = 0;  ///< Of the first and of the last line; 0: there is none.
    std::string sha256;                      ///< Of the bytes of the lines before this one.
};

/// Returns the text that is signed. No digest has such a text.
std::string render_proof(const export_proof& proof);
/// Out: empty if render_proof did not make the text.
std::optional<export_proof> parse_proof(std::string_view text);

struct digest_deleter {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// The SHA-256 of texts that follow one another.
class text_hash {
  public:
    text_hash();
    void add(std::string_view text);
    /// Returns it in hexadecimal digits. Nothing is called after it.
    std::string finish();

  private:
    std::unique_ptr<EVP_MD_CTX, digest_deleter> context_;
};

/// Returns the first 16 digits of the SHA-256 of the public key (DER).
std::string key_id_of(EVP_PKEY& key);
/// Returns the Ed25519 signature of a text in hexadecimal digits. Throws std::runtime_error if the key can't sign.
std::string sign_text(EVP_PKEY& key, std::string_view text);
/// Returns whether one of the keys has signed the text.
bool is_signed(const std::vector<pkey_handle>& keys, std::string_view text, std::string_view signature);

enum class digested_table { history, changes };

/// Hashes the rows of a table with ids in (after, to], in the order of id: of each week two SHA-256, each of its salt
/// and, row by row and column by column, `-,` for null and otherwise `LENGTH:TEXT,` (the length in bytes). Throws as
/// session::exec does.
digest_parts hash_rows(session& session, digested_table table, std::int64_t after, std::int64_t to,
                       const digest_salts& salts);

/// Reads digests with a higher number, in their order, with their salts, at most `limit`. Throws as session::exec does.
std::vector<signed_digest> read_digests(session& session, std::int64_t after, std::size_t limit);

/// Reads a page for GET /v1/history/digests. Throws as session::exec does.
digest_page read_digest_page(session& session, const digest_query& query);

/// The ends of both tables, whose writers are those of either.
struct digest_tail {
    history_tail history, changes;
};
digest_tail read_digest_tail(session& session);

/// The newest digest that one of the keys has signed.
struct last_digest {
    std::optional<digest_entry> entry;  ///< Empty: there is none.
    std::string sha256;                 ///< Of the entry's text.
    std::int64_t age_ms = 0;
    std::int64_t unsigned_entries = 0;  ///< Newer ones that none of the keys has signed.
};

/// Looks for it among the newest unsigned_entries_max. Throws as session::exec does, and std::runtime_error if there
/// are more and none of those is signed.
last_digest find_last_digest(session& session, const std::vector<pkey_handle>& keys);
inline constexpr std::int64_t unsigned_entries_max = 1'000;

/// The most ids of a table that one digest covers, so that it takes a bounded time.
inline constexpr std::int64_t digest_ids_max = 10'000;

/// What a gateway needs to make digests.
struct digest_source {
    const std::vector<pkey_handle>& keys;  ///< The first one signs; the digests of all are continued.
    std::string gateway, made_at;
    digest_salts salts;
    std::int64_t history_to = 0, changes_to = 0;  ///< No row with an id up to these can still appear.
    std::int64_t ids_max = digest_ids_max;        ///< The most ids of a table that the digest covers.
};

struct made_digest {
    std::optional<signed_digest> made;  ///< Empty: every row up to the ids is in a digest.
    bool complete = false;              ///< Every row up to the ids is.
    std::int64_t unsigned_entries = 0;  ///< Newest digests that none of the keys has signed, and which were left out.
};

/// Makes the next digest, in a transaction. Throws as session::exec does; 55P03: another gateway makes it.
made_digest make_digest(session& session, const digest_source& source);

/// Makes the next digest in place of another one, of the same ranges, in the transaction that is open and has erased
/// names of its rows (fencing.erase_names). Throws as session::exec does.
///
/// In: `source` without the ids. `reason` says which digest, and why.
void append_replacement(session& session, const digest_source& source, const digest_entry& replaced,
                        digest_replacement reason);

}  // namespace fencegate::pg
