#pragma once

#include <libpq-fe.h>
#include <pqxx/pqxx>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Hides the differences between libpqxx 6.4 (Debian 12) and 7.10 (Debian 13); the rest of this folder compiles with
/// both.
namespace fencegate::pg::compat {

/// Parameters of a statement as text; empty = NULL.
using parameters = std::vector<std::optional<std::string>>;

/// Returns an integer of a result; empty for NULL.
inline std::optional<std::int64_t> optional_number(const pqxx::field& field) {
    return field.is_null() ? std::nullopt : std::optional(field.as<std::int64_t>());
}

#if PQXX_VERSION_MAJOR < 7

/// A connection that gives access to libpq's connection, for the pipeline mode.
class connection final : public pqxx::connection_base {
  public:
    explicit connection(const std::string& conninfo) : pqxx::connection_base(policy_), policy_(conninfo) { init(); }
    connection(const connection&) = delete;
    connection& operator=(const connection&) = delete;
    ~connection() noexcept { close(); }

    PGconn* raw() const { return policy_.made; }

  private:
    struct keeping_policy final : pqxx::connect_direct {
        using connect_direct::connect_direct;
        handle do_startconnect(handle before) override {
            made = connect_direct::do_startconnect(before);
            return made;
        }
        handle made = nullptr;
    };
    keeping_policy policy_;
};

/// Keeps 6.4 from reconnecting by itself inside a statement, which would lose the transaction and the session's
/// settings silently. (Where a connection breaks during a statement, 6.4 leaks one PGresult of about 2 KB; that can't
/// be avoided here.)
inline void forbid_reactivation(connection& connection) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    connection.inhibit_reactivation(true);
#pragma GCC diagnostic pop
}

inline void make_verbose(connection& connection) {
    connection.set_verbosity(pqxx::connection_base::verbose);
}

/// Prepares the statement at once and forgets it where that fails: 6.4 alone would prepare it at its first use and keep
/// the definition of a statement that could not be prepared.
inline void prepare(connection& connection, const std::string& name, const std::string& sql) {
    connection.prepare(name, sql);
    try {
        connection.prepare_now(name);
    } catch (...) {
        connection.unprepare(name);
        throw;
    }
}

inline pqxx::result exec_prepared(pqxx::transaction_base& tx, const std::string& name, const parameters& values) {
    // No text here contains U+0000 (scalar_text refuses it), so C strings lose nothing; null pointers become NULL.
    std::vector<const char*> pointers;
    pointers.reserve(values.size());
    for (const auto& value : values)
        pointers.push_back(value ? value->c_str() : nullptr);
    return tx.exec_prepared(name, pqxx::prepare::make_dynamic_params(pointers));
}

inline pqxx::result exec_once(pqxx::transaction_base& tx, const std::string& sql, const parameters& values) {
    std::vector<const char*> pointers;
    pointers.reserve(values.size());
    for (const auto& value : values)
        pointers.push_back(value ? value->c_str() : nullptr);
    return tx.exec_params(sql, pqxx::prepare::make_dynamic_params(pointers));
}

#else

/// A connection that gives access to libpq's connection, for the pipeline mode.
class connection final : public pqxx::connection {
  public:
    explicit connection(const std::string& conninfo) : connection(open(conninfo)) {}

    PGconn* raw() const { return raw_; }

  private:
    explicit connection(PGconn* raw) : pqxx::connection(pqxx::connection::seize_raw_connection(raw)), raw_(raw) {}

    static PGconn* open(const std::string& conninfo) {
        PGconn* made = PQconnectdb(conninfo.c_str());
        if (made != nullptr && PQstatus(made) == CONNECTION_OK) return made;
        const std::string message = made == nullptr ? "out of memory" : PQerrorMessage(made);
        PQfinish(made);
        throw pqxx::broken_connection(message);
    }

    PGconn* raw_;
};

inline void forbid_reactivation(connection&) {}

inline void make_verbose(connection& connection) {
    connection.set_verbosity(pqxx::error_verbosity::verbose);
}

inline void prepare(connection& connection, const std::string& name, const std::string& sql) {
    connection.prepare(name, sql);
}

inline pqxx::params bind(const parameters& values) {
    pqxx::params bound;
    bound.reserve(values.size());
    for (const auto& value : values) {
        if (value) {
            bound.append(*value);
        } else {
            bound.append();
        }
    }
    return bound;
}

inline pqxx::result exec_prepared(pqxx::transaction_base& tx, const std::string& name, const parameters& values) {
    return tx.exec(pqxx::prepped{name}, bind(values));
}

inline pqxx::result exec_once(pqxx::transaction_base& tx, const std::string& sql, const parameters& values) {
    return tx.exec(sql, bind(values));
}

#endif

}  // namespace fencegate::pg::compat
