#pragma once

#include <gateway/devstack/ports.hpp>
#include <gateway/devstack/process.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace fencegate::devstack {

/// The stack's own PostgreSQL server, created once by initdb in DIR/postgres. Runs as an unprivileged user if this
/// process is root.
///
/// Listens on a Unix socket, without password, in a folder that only this user and root may enter; and on an
/// address with the passwords of DIR/pgpass. Keeps PostgreSQL's default settings for durability.
class postgres {
  public:
    static constexpr const char* superuser = "postgres";
    static constexpr const char* database = "fencegate";
    static constexpr const char* gateway_role = "fencegate";

    /// Creates the files that are missing. Throws stack_error.
    postgres(const std::filesystem::path& dir, endpoint address);

    /// Returns the program to run. It must not run longer than this object lives.
    program server() const;

    /// Returns whether the server accepts connections.
    bool is_answering() const;

    /// Creates the database and the gateways' login role, installs sql/ and the shop example. May be repeated.
    ///
    /// Out:    false when the server does not accept connections yet.
    /// Errors: throws stack_error.
    bool install() const;

    /// Returns a libpq connection string over the socket.
    std::string conninfo(const std::string& user, const std::string& dbname) const;

    /// Returns how the superuser connects over TCP, with the password, for programs that know no Unix sockets.
    boost::json::object tcp_address() const;

    const std::filesystem::path& socket_folder() const { return sockets_; }
    const endpoint& address() const { return address_; }

    /// Removes the socket's folder if it is outside DIR. To be called after the server has ended.
    void remove_socket_folder() const;

  private:
    void initialize_once() const;
    void write_settings() const;
    std::string password_of(const std::string& role) const;

    std::filesystem::path dir_;
    std::filesystem::path data_;
    std::filesystem::path sockets_;
    std::filesystem::path programs_;  ///< The folder of initdb and postgres.
    endpoint address_;
    std::optional<account> user_;
};

}  // namespace fencegate::devstack
