#pragma once

#include <sim/redis/resp.hpp>
#include <sim/redis/script_memory.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

struct lua_State;

namespace sim {

class redis_server;

/// Runs Lua scripts as Redis does: KEYS, ARGV, redis.call and its kin, and an error for every undefined global.
/// A text is compiled once per process, and all simulated servers share the result.
class script_engine {
  public:
    /// The engine of the process; not for several threads.
    static script_engine& instance();
    script_engine();
    ~script_engine();
    script_engine(const script_engine&) = delete;
    script_engine& operator=(const script_engine&) = delete;

    struct script {
        std::string sha1;
        int function = 0;   ///< Its place in Lua's registry.
        std::string error;  ///< Why it can't be compiled; empty: it can.
    };
    const script& compile(std::string_view text);
    /// Null if no text with this SHA-1 was compiled in this process.
    const script* find(std::string_view sha1) const;
    void run(const script& s, redis_server& server, std::span<const std::string_view> keys,
             std::span<const std::string_view> arguments, redis_reply& out);

    /// From now on each file of the product's scripts that is in this folder replaces the built-in one.
    /// Returns false if there is none.
    bool load_folder(const std::string& folder);

  private:
    struct replacement {
        std::string built_in, text;
    };
    static int call_command(lua_State* lua);
    static int call_command_protected(lua_State* lua);
    static int make_error(lua_State* lua);
    static int make_status(lua_State* lua);
    static int make_sha1(lua_State* lua);
    int call_command(lua_State* lua, bool raises);
    void push(const redis_reply& reply);
    void convert(int index, redis_reply& out, int depth);

    script_memory memory_;
    lua_State* lua_;
    redis_server* server_ = nullptr;
    /// Of the end of a text alone: scripts are long, and each gateway sends them to each node.
    struct text_hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>()(text.substr(text.size() - std::min<std::size_t>(text.size(), 40)));
        }
    };
    template <class Value>
    using text_map = std::unordered_map<std::string, Value, text_hash, std::equal_to<>>;
    text_map<script> by_text_;
    text_map<const script*> by_sha1_;
    std::vector<replacement> replacements_;
    // Of the command that a script calls; they are members because Lua's errors skip destructors.
    redis_arguments words_;
    std::vector<std::string> numbers_;
    redis_reply answer_;
};

}  // namespace sim
