#pragma once

#include <sim/redis/redis_data.hpp>
#include <sim/redis/resp.hpp>

#include <array>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

namespace sim {

/// A Redis server as far as lockcore uses one: strings and hashes with a ttl, INFO, CONFIG, and Lua scripts, which
/// script_engine runs unchanged. Its clock is set from outside. tests/sim/differential sends it and a real server the
/// same commands and compares every answer and all data.
///
/// Not there: other types of data, users and their rights, other databases, MULTI,
/// blocking commands, a maxmemory limit.
class redis_server {
  public:
    redis_data data;
    std::string run_id = "0000000000000000000000000000000000000000";
    std::map<std::string, std::string, std::less<>> config = {{"appendonly", "no"},
                                                              {"appendfsync", "everysec"},
                                                              {"no-appendfsync-on-rewrite", "no"},
                                                              {"maxmemory-policy", "noeviction"},
                                                              {"save", ""}};
    std::uint64_t evicted_keys = 0;
    /// PUBLISH calls it; it returns the number of subscribers.
    std::function<std::int64_t(std::string_view channel, std::string_view text)> on_publish;
    /// Is called with each key before a command changes or removes its value.
    std::function<void(std::string_view key)> before_write;

    /// Begins a new process with the present data: its counts are 0, and it knows no script.
    void restart(std::string new_run_id);
    void set_clock(std::chrono::microseconds now);
    milliseconds now() const { return now_; }

    /// Runs one command, which a client sent.
    redis_reply execute(const redis_arguments& command);
    /// Runs a command which a script called.
    void call(const redis_arguments& command, redis_reply& out);
    /// Counts a call of a command as if it had run, without an effect.
    void count_call(std::string_view name) { ++calls_[std::string(name)]; }

  private:
    using handler = void (redis_server::*)(const redis_arguments&, redis_reply&);
    struct command_row {
        std::string_view name;
        int arity;  ///< The number of arguments with the name; negative: at least so many.
        handler run;
        bool counted = false;  ///< INFO commandstats has its calls.
        bool in_scripts = true;
    };
    static const std::unordered_map<std::string_view, command_row>& commands();

    void dispatch(const redis_arguments& command, redis_reply& out, bool from_script);
    redis_value* find_string(std::string_view key, redis_reply& out);
    redis_value* find_hash(std::string_view key, redis_reply& out);
    redis_value* open_hash(std::string_view key, redis_reply& out);
    void will_write(std::string_view key) {
        if (before_write) before_write(key);
    }

    void get(const redis_arguments& a, redis_reply& out);
    void getrange(const redis_arguments& a, redis_reply& out);
    void set(const redis_arguments& a, redis_reply& out);
    void append(const redis_arguments& a, redis_reply& out);
    void del(const redis_arguments& a, redis_reply& out);
    void exists(const redis_arguments& a, redis_reply& out);
    void type(const redis_arguments& a, redis_reply& out);
    void pttl(const redis_arguments& a, redis_reply& out);
    void pexpire(const redis_arguments& a, redis_reply& out);
    void persist(const redis_arguments& a, redis_reply& out);
    void hget(const redis_arguments& a, redis_reply& out);
    void hmget(const redis_arguments& a, redis_reply& out);
    void hgetall(const redis_arguments& a, redis_reply& out);
    void hset(const redis_arguments& a, redis_reply& out);
    void hsetnx(const redis_arguments& a, redis_reply& out);
    void hdel(const redis_arguments& a, redis_reply& out);
    void scan(const redis_arguments& a, redis_reply& out);
    void publish(const redis_arguments& a, redis_reply& out);
    void time(const redis_arguments& a, redis_reply& out);
    void info(const redis_arguments& a, redis_reply& out);
    void acl(const redis_arguments& a, redis_reply& out);
    void config_command(const redis_arguments& a, redis_reply& out);
    void script(const redis_arguments& a, redis_reply& out);
    void eval(const redis_arguments& a, redis_reply& out);
    void ping(const redis_arguments& a, redis_reply& out);
    void auth(const redis_arguments& a, redis_reply& out);
    void flushall(const redis_arguments& a, redis_reply& out);
    void swapdb(const redis_arguments& a, redis_reply& out);

    std::string info_text(std::string_view section) const;

    milliseconds now_{0};
    std::chrono::microseconds clock_{0};
    std::map<std::string, std::uint64_t> calls_;  ///< Of the commands that lockcore counts, by the name in INFO.
    std::set<std::string, std::less<>> scripts_;  ///< The SHA-1 of those that EVALSHA can run.
};

}  // namespace sim
