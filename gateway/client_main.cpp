// The command line of fencegate for callers alone: the commands that call a gateway, in one static file for any Linux.
#include <gateway/cli/commands.hpp>
#include <gateway/domain/exit_code.hpp>

#include <CLI/CLI.hpp>

#include <nss.h>
#include <openssl/crypto.h>

#include <string_view>

int main(int argc, char** argv) {
    using namespace fencegate;
    return cli::run_program(argc > 1 ? argv[1] : "", exit_failed, [&] {
        // Of /etc/nsswitch.conf, glibc would load libraries of the system, which may belong to another glibc. The
        // program has these two.
        __nss_configure_lookup("hosts", "files dns");
        // So would OpenSSL, of what openssl.cnf names.
        OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
        CLI::App app{"fencegate: leases with fencing tokens. These are the commands that call a gateway."};
        app.set_version_flag("--version", "fencegate-client " FENCEGATE_VERSION);
        app.require_subcommand(1);
        app.footer("serve, dev and the commands of operators are in the package fencegate, not in fencegate-client.");
        cli::commands commands(app);
        if (const auto code = commands.parse(argc, argv)) return *code;
        return commands.run().value();
    });
}
