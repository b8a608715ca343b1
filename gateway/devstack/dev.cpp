#include <gateway/devstack/dev.hpp>

#include <gateway/config/secrets.hpp>
#include <gateway/devstack/files.hpp>
#include <gateway/devstack/ports.hpp>
#include <gateway/devstack/process.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/runtime/text.hpp>

#include <boost/json.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string_view>

namespace fencegate::devstack {
namespace {

using namespace std::chrono_literals;

constexpr auto servers_timeout = 60s;
constexpr auto readiness_timeout = 60s;
constexpr auto stop_timeout = 8s;

/// Removes the variables PG* of libpq: a PGHOST or PGOPTIONS of the caller must not connect this process or its
/// children to another server.
void clear_libpq_environment() {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        if (text.starts_with("PG")) names.push_back(text.substr(0, text.find('=')));
    }
    for (const auto& name : names)
        unsetenv(name.c_str());
}

/// Starts all programs in order.
///
/// Out: false when a signal to stop came first.
bool start(stack& all, supervisor& programs) {
    for (auto& node : all.nodes())
        programs.supervise(std::move(node));
    programs.supervise(all.database().server());
    if (!programs.run_until([&] { return all.database().install(); }, servers_timeout, "PostgreSQL")) return false;
    for (auto& gateway : all.gateways())
        programs.supervise(std::move(gateway));
    return programs.run_until([&] { return all.is_ready(); }, readiness_timeout, "a gateway's readiness");
}

struct api_key_entry {
    const char* principal;
    const char* scopes;
};
constexpr api_key_entry api_key_entries[] = {
    {"admin", "[leases, writes, history, operate, bare_tokens]"},
    {"orders", "[leases, writes]"},
    {"auditor", "[history]"},
};

std::string node_name(std::size_t index) {
    return "redis-" + std::to_string(index + 1);
}
std::string gateway_name(std::size_t index) {
    return "gateway-" + std::to_string(index + 1);
}

/// Quotes a text for a shell, if needed.
std::string quote_shell(const std::string& text) {
    const bool plain = std::ranges::all_of(text, [](unsigned char c) {
        return std::isalnum(c) || std::string_view("/._-+,@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain) return text;
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

/// Quotes a text for YAML, whose double-quoted strings include the strings of JSON.
std::string quote_yaml(const std::string& text) {
    return boost::json::serialize(boost::json::value(text));
}

}  // namespace

int run(const options& chosen) {
    int exit = exit_ok;
    try {
        clear_libpq_environment();
        std::signal(SIGPIPE, SIG_IGN);
        // A shell without job control starts background programs with SIGINT ignored; children would inherit that.
        std::signal(SIGINT, SIG_DFL);
        const auto started_at = std::chrono::steady_clock::now();
        const auto folder = prepare_folder(chosen.data_dir);
        const folder_lock lock(folder);
        std::cout << "fencegate dev: starting below " << folder.string() << std::endl;
        supervisor* running = nullptr;
        bool ready = false;
        std::optional<stack> all;
        supervisor programs([&] {
            if (ready) all->write_stack_file(*running);
        });
        running = &programs;
        all.emplace(folder, chosen);
        try {
            if (start(*all, programs)) {
                ready = true;
                all->write_stack_file(programs);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started_at;
                std::cout << all->summary(took.count()) << std::flush;
                programs.run();
            }
        } catch (const stack_error& e) {
            runtime::print_error("dev", e.what());
            exit = exit_failed;
        }
        ready = false;
        all->remove_stack_file();
        std::cout << "fencegate dev: stopping" << std::endl;
        // Gateways stop first, so that they can still release their leases and write their events.
        programs.stop({"gateway-"}, stop_timeout);
        programs.stop({"redis-", "postgres"}, stop_timeout);
        all->database().remove_socket_folder();
        std::cout << "fencegate dev: stopped; " << folder.string() << " keeps the data" << std::endl;
    } catch (const std::exception& e) {
        runtime::print_error("dev", e.what());
        exit = exit_failed;
    }
    return exit;
}

std::filesystem::path prepare_folder(const std::filesystem::path& dir) {
    std::error_code error;
    std::filesystem::path full = std::filesystem::absolute(dir, error).lexically_normal();
    if (!full.has_filename()) full = full.parent_path();
    std::filesystem::create_directories(full.parent_path(), error);
    if (error) throw stack_error(full.parent_path().string() + ": " + error.message());
    // Other users may enter, because PostgreSQL may run as another user; each secret file has a mode of its own.
    ensure_folder(full, 0755, geteuid(), getegid());
    ensure_folder(full / "logs", 0755, geteuid(), getegid());
    return full;
}

stack::stack(const std::filesystem::path& folder, const options& chosen) : dir_(folder), options_(chosen) {
    remove_stack_file();
    check_options();
    choose_ports();
    make_keys();
}

void stack::check_options() const {
    secret_of_environment();
    if (find_on_path("redis-server").empty())
        throw stack_error(std::string("redis-server is not on the PATH; ") + install_advice);
    if (options_.auth || parse_endpoint(options_.http).is_loopback()) return;
    throw stack_error("without --auth the stack listens on loopback only; " + options_.http + " needs --auth");
}

void stack::choose_ports() {
    port_registry& ports = ports_.emplace(dir_ / "ports");
    if (const std::size_t previous = ports.count("redis-"); previous != 0 && previous != options_.nodes) {
        throw stack_error(dir_.string() + " holds a stack of " + std::to_string(previous) +
                          " nodes, which can't change; choose another --data-dir");
    }
    for (std::size_t i = 0; i < options_.nodes; ++i) {
        node_ports_.push_back(ports.assign_port(node_name(i)));
        ensure_folder(dir_ / node_name(i), 0700, geteuid(), getegid());
    }
    const auto parse_free = [&](const std::string& option, const std::string& text) {
        const endpoint target = parse_endpoint(text);
        if (target.port != 0 && !ports.claim(target))
            throw stack_error(text + " is in use; choose another with " + option + ", or " + option + " 127.0.0.1:0");
        return target;
    };
    endpoint database = parse_free("--postgres", options_.postgres);
    if (database.port == 0) database.port = ports.assign_port("postgres", database.address);
    const endpoint first = parse_free("--http", options_.http);
    for (std::size_t i = 0; i < options_.gateways; ++i) {
        endpoint address = first;
        if (i > 0 || first.port == 0) address.port = ports.assign_port(gateway_name(i), first.address);
        endpoints_.push_back(address);
    }
    ports.save();
    database_.emplace(dir_, database);
}

void stack::make_keys() {
    load_or_create_secret(dir_ / "signing.key");
    if (!options_.auth) return;
    for (const auto& key : api_key_entries) {
        api_keys_[key.principal] = load_or_create_password(dir_ / (std::string("api-") + key.principal + ".key"));
    }
}

std::vector<program> stack::nodes() const {
    std::vector<program> all;
    for (std::size_t i = 0; i < node_ports_.size(); ++i) {
        program node;
        node.name = node_name(i);
        node.folder = dir_ / node.name;
        node.log = dir_ / "logs" / (node.name + ".log");
        node.argv = {"redis-server",
                     "--port",
                     std::to_string(node_ports_[i]),
                     "--bind",
                     "127.0.0.1",
                     "--dir",
                     node.folder,
                     "--save",
                     "",
                     "--appendonly",
                     "yes",
                     "--appendfsync",
                     options_.appendfsync,
                     "--maxmemory-policy",
                     "noeviction"};
        node.is_answering = [address = endpoint{"127.0.0.1", node_ports_[i]}] { return accepts_connections(address); };
        all.push_back(std::move(node));
    }
    return all;
}

std::string stack::gateway_config(std::size_t index) const {
    std::string text =
        "# Made by fencegate dev at each start.\n"
        "http: {address: " +
        quote_yaml(endpoints_[index].address) + ", port: " + std::to_string(endpoints_[index].port) +
        ", shutdown_grace_ms: 0}\n"
        "lease: {signing_key_file: signing.key}\n"
        "redis:\n"
        "  node_timeout_ms: 1000  # everything runs on one machine, which may be busy with other work\n"
        "  nodes:\n";
    for (std::size_t i = 0; i < node_ports_.size(); ++i) {
        text += "    - {name: " + node_name(i) + ", host: 127.0.0.1, port: " + std::to_string(node_ports_[i]) + "}\n";
    }
    text += "postgres: {conninfo: " + quote_yaml(database_->conninfo(postgres::gateway_role, postgres::database)) +
            "}\n"
            "log: {level: info, json: false}\n";
    if (!api_keys_.empty()) text += "auth:\n  api_keys:\n";
    for (const auto& key : api_key_entries) {
        const auto found = api_keys_.find(key.principal);
        if (found == api_keys_.end()) continue;
        text += std::string("    - {principal: ") + key.principal + ", key_sha256: \"" + sha256_hex(found->second) +
                "\", scopes: " + key.scopes + "}\n";
    }
    return text;
}

std::vector<program> stack::gateways() const {
    std::vector<program> all;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
        program gateway;
        gateway.name = gateway_name(i);
        gateway.folder = dir_;
        gateway.log = dir_ / "logs" / (gateway.name + ".log");
        const auto file = dir_ / (gateway.name + ".yaml");
        write_atomically(file, gateway_config(i), 0600);
        gateway.argv = {self, "serve", "--config", file};
        if (!endpoints_[i].is_loopback()) gateway.argv.emplace_back("--insecure");
        gateway.is_answering = [address = endpoints_[i]] { return get_status(address, "/healthz") != 0; };
        all.push_back(std::move(gateway));
    }
    return all;
}

bool stack::is_ready() const {
    return std::all_of(endpoints_.begin(), endpoints_.end(),
                       [](const endpoint& each) { return get_status(each, "/readyz") == 200; });
}

void stack::write_stack_file(const supervisor& running) const {
    boost::json::object facts;
    facts["http"] = endpoints_.front().url();
    boost::json::array gateways, redis;
    for (std::size_t i = 0; i < endpoints_.size(); ++i) {
        gateways.push_back({{"http", endpoints_[i].url()}, {"pid", running.pid_of(gateway_name(i))}});
    }
    for (std::size_t i = 0; i < node_ports_.size(); ++i) {
        redis.push_back({{"name", node_name(i)},
                         {"host", "127.0.0.1"},
                         {"port", node_ports_[i]},
                         {"pid", running.pid_of(node_name(i))}});
    }
    facts["gateways"] = std::move(gateways);
    facts["redis"] = std::move(redis);
    facts["postgres"] = {{"host", database_->socket_folder().string()},
                         {"port", database_->address().port},
                         {"database", postgres::database},
                         {"superuser", postgres::superuser},
                         {"conninfo", database_->conninfo(postgres::superuser, postgres::database)},
                         {"tcp", database_->tcp_address()},
                         {"pid", running.pid_of("postgres")}};
    if (!api_keys_.empty()) {
        boost::json::object keys;
        for (const auto& [principal, key] : api_keys_)
            keys[principal] = key;
        facts["api_keys"] = std::move(keys);
    }
    write_atomically(dir_ / "stack.json", boost::json::serialize(facts) + "\n", 0600);
}

void stack::remove_stack_file() const {
    unlink((dir_ / "stack.json").c_str());
}

std::string stack::summary(double seconds) const {
    char took[32];
    std::snprintf(took, sizeof took, "%.1f", seconds);
    std::string text = std::string("\nReady after ") + took + " s.\n";
    for (const auto& each : endpoints_)
        text += "  gateway     " + each.url() + "\n";
    text += "  redis       127.0.0.1, ports";
    for (const auto port : node_ports_)
        text += " " + std::to_string(port);
    text += "\n  postgresql  psql -h " + quote_shell(database_->socket_folder().string()) + " -p " +
            std::to_string(database_->address().port) + " -U " + postgres::superuser + " " + postgres::database + "\n";
    if (!api_keys_.empty()) text += "  api keys    " + (dir_ / "api-{admin,orders,auditor}.key").string() + "\n";
    text += "  all of it   " + (dir_ / "stack.json").string() + ", logs in " + (dir_ / "logs").string() + "\n";
    text += "Ctrl-C (or kill " + std::to_string(getpid()) + ") stops all of it.\n\n";
    return text;
}

}  // namespace fencegate::devstack
