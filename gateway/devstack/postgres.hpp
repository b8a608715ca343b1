#pragma once

#include <gateway/devstack/process.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fencegate::devstack {

/// The stack's own PostgreSQL: made once by initdb below DIR/postgres, run as an unprivileged user where we are root.
///
/// Reached over a Unix socket in a folder that only this user and root may enter, therefore without password; and on
/// 127.0.0.1 with the passwords of DIR/pgpass. Durability stays as PostgreSQL has it.
class postgres {
  public:
    static constexpr const char* superuser = "postgres";
    static constexpr const char* database = "fencegate";
    static constexpr const char* gateway_role = "fencegate";

    /// Makes what is missing. Throws stack_error.
    postgres(const std::filesystem::path& dir, std::uint16_t port);

    /// To be run no longer than this object lives.
    program server() const;

    /// Whether it takes connections.
    bool answers() const;

    /// Creates the database and the gateways' login, installs sql/ and the shop example. May be repeated. Throws
    /// stack_error; false where the server is not yet there.
    bool install() const;

    /// libpq connection string of keywords, over the socket.
    std::string conninfo(const std::string& user, const std::string& dbname) const;

    const std::filesystem::path& socket_folder() const { return sockets_; }
    std::uint16_t port() const { return port_; }

    /// Takes the socket's folder away where it lies outside DIR. After the server has ended.
    void tidy() const;

  private:
    void init_once() const;
    void write_settings() const;

    std::filesystem::path dir_;
    std::filesystem::path data_;
    std::filesystem::path sockets_;
    std::filesystem::path programs_;  ///< Where initdb and postgres lie.
    std::uint16_t port_;
    std::optional<account> user_;
};

}  // namespace fencegate::devstack
