#include <sim/redis/redis_server.hpp>
#include <sim/redis/script_engine.hpp>

#include <algorithm>
#include <cctype>

// The commands about the server and its scripts, and the table of all commands.

namespace sim {
namespace {

using kind = redis_reply::kind;

std::string to_case(std::string_view text, int (*convert)(int)) {
    std::string out(text);
    for (char& c : out)
        c = static_cast<char>(convert(static_cast<unsigned char>(c)));
    return out;
}
std::string upper(std::string_view text) {
    return to_case(text, std::toupper);
}
std::string lower(std::string_view text) {
    return to_case(text, std::tolower);
}

}  // namespace

const std::unordered_map<std::string_view, redis_server::command_row>& redis_server::commands() {
    using s = redis_server;
    static const command_row rows[] = {
        {"GET", 2, &s::get},
        {"GETRANGE", 4, &s::getrange},
        {"SET", -3, &s::set},
        {"APPEND", 3, &s::append},
        {"DEL", -2, &s::del},
        {"EXISTS", -2, &s::exists},
        {"TYPE", 2, &s::type},
        {"PTTL", 2, &s::pttl},
        {"PEXPIRE", 3, &s::pexpire},
        {"PERSIST", 2, &s::persist},
        {"HGET", 3, &s::hget},
        {"HMGET", -3, &s::hmget},
        {"HGETALL", 2, &s::hgetall},
        {"HSET", -4, &s::hset},
        {"HSETNX", 4, &s::hsetnx},
        {"HDEL", -3, &s::hdel},
        {"SCAN", -2, &s::scan},
        {"PUBLISH", 3, &s::publish},
        {"TIME", 1, &s::time},
        {"INFO", -1, &s::info},
        {"PING", -1, &s::ping},
        {"CONFIG", -2, &s::config_command, false, false},
        {"SCRIPT", -2, &s::script, false, false},
        {"EVAL", -3, &s::eval, false, false},
        {"EVALSHA", -3, &s::eval, false, false},
        {"AUTH", -2, &s::auth, false, false},
        {"ACL", -2, &s::acl, false, false},
        {"FLUSHALL", -1, &s::flushall, true},
        {"FLUSHDB", -1, &s::flushall, true},
        {"SWAPDB", 3, &s::swapdb, true},
    };
    static const std::unordered_map<std::string_view, command_row> table = [] {
        std::unordered_map<std::string_view, command_row> out;
        for (const command_row& row : rows)
            out.emplace(row.name, row);
        return out;
    }();
    return table;
}

redis_reply redis_server::execute(const redis_arguments& command) {
    redis_reply out;
    dispatch(command, out, false);
    return out;
}

void redis_server::call(const redis_arguments& command, redis_reply& out) {
    dispatch(command, out, true);
}

void redis_server::dispatch(const redis_arguments& command, redis_reply& out, bool from_script) {
    auto found = commands().find(command[0]);
    if (found == commands().end()) found = commands().find(upper(command[0]));
    if (found == commands().end()) {
        std::string text = "ERR Unknown Redis command called from script";
        if (!from_script) {
            text = "ERR unknown command '" + std::string(command[0]) + "', with args beginning with: ";
            for (std::size_t i = 1; i < command.size(); ++i)
                text += "'" + std::string(command[i]) + "' ";
        }
        return out.set(kind::error, text);
    }
    const command_row& row = found->second;
    const auto count = static_cast<int>(command.size());
    if (row.arity >= 0 ? count != row.arity : count < -row.arity) {
        return out.set(kind::error, from_script
                                        ? "ERR Wrong number of args calling Redis command from script"
                                        : "ERR wrong number of arguments for '" + lower(row.name) + "' command");
    }
    if (from_script && !row.in_scripts)
        return out.set(kind::error, "ERR This Redis command is not allowed from script");
    if (row.counted) count_call(lower(row.name));
    out.type = kind::nil;
    (this->*row.run)(command, out);
}

void redis_server::restart(std::string new_run_id) {
    run_id = std::move(new_run_id);
    calls_.clear();
    scripts_.clear();
    evicted_keys = 0;
}

void redis_server::ping(const redis_arguments& a, redis_reply& out) {
    if (a.size() > 2) return out.set(kind::error, "ERR wrong number of arguments for 'ping' command");
    if (a.size() == 2) return out.set(kind::text, a[1]);
    out.set(kind::status, "PONG");
}

void redis_server::auth(const redis_arguments&, redis_reply& out) {
    out.set(kind::status, "OK");
}

/// ACL DRYRUN: every user may do everything.
void redis_server::acl(const redis_arguments&, redis_reply& out) {
    out.set(kind::status, "OK");
}

void redis_server::flushall(const redis_arguments&, redis_reply& out) {
    data.clear();
    out.set(kind::status, "OK");
}

void redis_server::swapdb(const redis_arguments&, redis_reply& out) {
    out.set(kind::status, "OK");  // there are no data but in database 0, and the tests swap two others
}

std::string redis_server::info_text(std::string_view section) const {
    std::string out;
    const auto add = [&out](std::string_view name, std::string_view value) {
        out.append(name).append(":").append(value).append("\r\n");
    };
    const auto wants = [section](std::string_view name) {
        return section == name || section == "all" || section == "everything" ||
               (name != "commandstats" && section == "default");
    };
    if (wants("server")) {
        out += "# Server\r\n";
        add("redis_version", "7.0.15");
        add("redis_mode", "standalone");
        add("run_id", run_id);
    }
    if (wants("memory")) {
        out += "# Memory\r\n";
        add("maxmemory_policy", config.find("maxmemory-policy")->second);
    }
    if (wants("persistence")) {
        out += "# Persistence\r\n";
        add("aof_enabled", config.find("appendonly")->second == "yes" ? "1" : "0");
        add("aof_rewrite_in_progress", "0");
        add("aof_rewrite_scheduled", "0");
        add("aof_last_bgrewrite_status", "ok");
        add("aof_last_write_status", "ok");
    }
    if (wants("stats")) {
        out += "# Stats\r\n";
        add("evicted_keys", std::to_string(evicted_keys));
    }
    if (wants("replication")) {
        out += "# Replication\r\n";
        add("role", "master");
    }
    if (wants("commandstats")) {
        out += "# Commandstats\r\n";
        for (const auto& [name, calls] : calls_)
            add("cmdstat_" + name, "calls=" + std::to_string(calls) + ",usec=" + std::to_string(calls * 10) +
                                       ",usec_per_call=10.00,rejected_calls=0,failed_calls=0");
    }
    if (wants("cluster")) {
        out += "# Cluster\r\n";
        add("cluster_enabled", "0");
    }
    return out;
}

void redis_server::info(const redis_arguments& a, redis_reply& out) {
    if (a.size() == 1) return out.set(kind::text, info_text("default"));
    out.set(kind::text, {});
    for (std::size_t i = 1; i < a.size(); ++i)
        out.text += info_text(lower(a[i]));
}

void redis_server::config_command(const redis_arguments& a, redis_reply& out) {
    const std::string action = upper(a[1]);
    if (action == "GET" && a.size() == 3) {
        out.type = kind::array;
        out.elements.clear();
        const auto found = config.find(lower(a[2]));
        if (found == config.end()) return;
        out.elements.resize(2);
        out.elements[0].set(kind::text, found->first);
        out.elements[1].set(kind::text, found->second);
        return;
    }
    if (action == "SET" && a.size() == 4) {
        count_call("config|set");
        const auto found = config.find(lower(a[2]));
        if (found == config.end())
            return out.set(kind::error,
                           "ERR Unknown option or number of arguments for CONFIG SET - '" + std::string(a[2]) + "'");
        found->second.assign(a[3]);
        return out.set(kind::status, "OK");
    }
    if (action == "RESETSTAT" && a.size() == 2) {
        calls_.clear();
        evicted_keys = 0;
        count_call("config|resetstat");
        return out.set(kind::status, "OK");
    }
    out.set(kind::error, "ERR unknown subcommand '" + std::string(a[1]) + "'. Try CONFIG HELP.");
}

void redis_server::script(const redis_arguments& a, redis_reply& out) {
    const std::string action = upper(a[1]);
    if (action == "EXISTS") {
        out.type = kind::array;
        out.elements.resize(a.size() - 2);
        for (std::size_t i = 2; i < a.size(); ++i)
            out.elements[i - 2].set_number(scripts_.contains(a[i]) ? 1 : 0);
    } else if (action == "LOAD" && a.size() == 3) {
        const script_engine::script& compiled = script_engine::instance().compile(a[2]);
        if (!compiled.error.empty()) return out.set(kind::error, compiled.error);
        scripts_.insert(compiled.sha1);
        out.set(kind::text, compiled.sha1);
    } else if (action == "FLUSH") {
        scripts_.clear();
        out.set(kind::status, "OK");
    } else {
        out.set(kind::error, "ERR unknown subcommand '" + std::string(a[1]) + "'. Try SCRIPT HELP.");
    }
}

void redis_server::eval(const redis_arguments& a, redis_reply& out) {
    std::size_t keys = 0;
    const auto [end, error] = std::from_chars(a[2].data(), a[2].data() + a[2].size(), keys);
    if (error != std::errc{} || end != a[2].data() + a[2].size())
        return out.set(kind::error, "ERR value is not an integer or out of range");
    if (keys > a.size() - 3) return out.set(kind::error, "ERR Number of keys can't be greater than number of args");
    script_engine& engine = script_engine::instance();
    const script_engine::script* found = nullptr;
    if (a[0].size() == 4) {
        found = &engine.compile(a[1]);
        if (!found->error.empty()) return out.set(kind::error, found->error);
        scripts_.insert(found->sha1);
    } else if (scripts_.contains(a[1])) {
        found = engine.find(a[1]);
    }
    if (!found) return out.set(kind::error, "NOSCRIPT No matching script. Please use EVAL.");
    const std::span<const std::string_view> words(a);
    engine.run(*found, *this, words.subspan(3, keys), words.subspan(3 + keys), out);
}

}  // namespace sim
