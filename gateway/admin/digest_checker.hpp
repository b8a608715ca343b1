#pragma once

#include <gateway/admin/history_checker.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace fencegate::admin {

/// What the rows of the database are compared with.
struct digest_options {
    std::string file;                      ///< Digests, one a line; empty: none are compared.
    std::vector<std::string> public_keys;  ///< Files, each with a public key in PEM.
};

/// A digest that replaces another one, after names were erased of its rows.
struct digest_erasure {
    std::int64_t number = 0, replaced = 0;
    std::string made_at, pseudonym, principal, reason;
};

struct digest_result {
    std::int64_t digests = 0;  ///< Whose rows were compared.
    std::int64_t rows = 0;
    std::int64_t rotated_rows = 0;  ///< That retention has dropped.
    std::int64_t lost = 0;          ///< Digests that are gone since a change of the storage generation.
    std::vector<digest_erasure> erasures;
    std::string last_made_at;       ///< Later rows are in no digest.
    std::vector<finding> findings;  ///< Of the promise f, in the order of the digests.
};

/// Compares the history and the recorded changes with the digests of a file and of the database. It needs the file, of
/// which nobody who can change the database can have changed a line, because of the database's own digests the last may
/// be missing.
///
/// Errors: std::runtime_error, where a file can't be read or has no key; those of session::exec.
digest_result check_digests(pg::session& session, const digest_options& options);

/// Prints whether an export of the history or of changes is whole and as a gateway signed it, and what it is of.
///
/// Out:    proved or broken of verify_exit_code.
/// Errors: std::runtime_error, where a file can't be read or has no key.
int check_export(const std::string& file, const std::vector<std::string>& public_keys, bool json);

}  // namespace fencegate::admin
