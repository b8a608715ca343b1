#include <sim/redis/script_engine.hpp>

#include <lockcore/encoding.hpp>
#include <lockcore/redis/scripts.hpp>
#include <sim/redis/redis_server.hpp>

#include <openssl/evp.h>

#include <lua.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sim {
namespace {

using kind = redis_reply::kind;

std::string sha1_of(std::string_view text) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr) != 1)
        throw std::runtime_error("SHA-1 is not available");
    return lockcore::to_hex(std::as_bytes(std::span(digest).first(size)));
}

/// Removes the lines that have only a comment, as the product does before it sends a script.
std::string remove_comment_lines(const std::string& source) {
    std::istringstream lines(source);
    std::string out;
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find_first_not_of(' ');
        if (first == std::string::npos || line.compare(first, 2, "--") != 0) out += line + '\n';
    }
    return out;
}

/// Redis raises an error for an undefined global variable, read or written.
constexpr const char* forbid_globals = R"(
    local names = {'print', 'dofile', 'loadfile', 'load', 'newproxy', 'getfenv', 'setfenv', 'collectgarbage', 'gcinfo'}
    for _, name in ipairs(names) do _G[name] = nil end
    setmetatable(_G, {
        __newindex = function(t, name) error('Attempt to modify a readonly table', 2) end,
        __index = function(t, name)
            error('Script attempted to access nonexistent global variable \'' .. tostring(name) .. '\'', 2)
        end,
    })
)";

void put_field(lua_State* lua, const char* name, std::string_view text) {
    lua_newtable(lua);
    lua_pushlstring(lua, text.data(), text.size());
    lua_setfield(lua, -2, name);
}

}  // namespace

script_engine& script_engine::instance() {
    static script_engine engine;
    return engine;
}

script_engine::script_engine() : lua_(lua_newstate(&script_memory::allocate, &memory_)) {
    if (!lua_) throw std::runtime_error("no memory for Lua");
    luaL_openlibs(lua_);
    lua_gc(lua_, LUA_GCSTOP, 0);  // script_memory does its work.
#ifdef LUAJIT_VERSION
    // The compiler of LuaJIT gains nothing with scripts that spend their time on strings.
    luaJIT_setmode(lua_, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
#endif
    for (const char* name : {"io", "os", "debug", "package", "require", "module", "jit", "ffi"}) {
        lua_pushnil(lua_);
        lua_setglobal(lua_, name);
    }
    lua_newtable(lua_);
    const luaL_Reg functions[] = {{"call", &script_engine::call_command},
                                  {"pcall", &script_engine::call_command_protected},
                                  {"error_reply", &script_engine::make_error},
                                  {"status_reply", &script_engine::make_status},
                                  {"sha1hex", &script_engine::make_sha1}};
    for (const luaL_Reg& f : functions) {
        lua_pushlightuserdata(lua_, this);
        lua_pushcclosure(lua_, f.func, 1);
        lua_setfield(lua_, -2, f.name);
    }
    lua_setglobal(lua_, "redis");
    // KEYS and ARGV are set for each run, without the metatable's __newindex.
    if (luaL_loadstring(lua_, forbid_globals) != 0 || lua_pcall(lua_, 0, 0, 0) != 0)
        throw std::runtime_error(lua_tostring(lua_, -1));
    memory_.save();
}

script_engine::~script_engine() {
    lua_close(lua_);
}

bool script_engine::load_folder(const std::string& folder) {
    bool found = false;
    for (const auto& [name, built_in] : lockcore::redis::scripts::files) {
        std::ifstream file(folder + '/' + std::string(name), std::ios::binary);
        if (!file) continue;
        found = true;
        std::ostringstream text;
        text << file.rdbuf();
        replacement r{remove_comment_lines(std::string(built_in)), remove_comment_lines(text.str())};
        if (r.built_in != r.text) replacements_.push_back(std::move(r));
    }
    return found;
}

const script_engine::script& script_engine::compile(std::string_view text) {
    if (const auto known = by_text_.find(text); known != by_text_.end()) return known->second;
    script& s = by_text_[std::string(text)];
    s.sha1 = sha1_of(text);
    by_sha1_[s.sha1] = &s;
    std::string source(text);
    for (const replacement& r : replacements_) {
        const std::size_t at = source.find(r.built_in);
        if (at != std::string::npos) source.replace(at, r.built_in.size(), r.text);
    }
    memory_.restore();
    if (luaL_loadbuffer(lua_, source.data(), source.size(), "@user_script") != 0) {
        s.error = "ERR Error compiling script (new function): " + std::string(lua_tostring(lua_, -1));
        lua_pop(lua_, 1);
    } else {
        s.function = luaL_ref(lua_, LUA_REGISTRYINDEX);
    }
    memory_.save();
    return s;
}

const script_engine::script* script_engine::find(std::string_view sha1) const {
    const auto found = by_sha1_.find(sha1);
    return found == by_sha1_.end() ? nullptr : found->second;
}

void script_engine::run(const script& s, redis_server& server, std::span<const std::string_view> keys,
                        std::span<const std::string_view> arguments, redis_reply& out) {
    server_ = &server;
    const auto set_global = [this](const char* name, std::span<const std::string_view> words) {
        lua_pushstring(lua_, name);
        lua_createtable(lua_, static_cast<int>(words.size()), 0);
        for (std::size_t i = 0; i < words.size(); ++i) {
            lua_pushlstring(lua_, words[i].data(), words[i].size());
            lua_rawseti(lua_, -2, static_cast<int>(i) + 1);
        }
        lua_rawset(lua_, LUA_GLOBALSINDEX);
    };
    set_global("KEYS", keys);
    set_global("ARGV", arguments);
    lua_rawgeti(lua_, LUA_REGISTRYINDEX, s.function);
    if (lua_pcall(lua_, 0, 1, 0) == 0) {
        convert(lua_gettop(lua_), out, 0);
    } else {
        // A command raised a table with its error; anything else was raised by error().
        if (lua_istable(lua_, -1)) {
            convert(lua_gettop(lua_), out, 0);
        } else {
            const char* text = lua_tostring(lua_, -1);
            out.set(kind::error, "ERR " + std::string(text ? text : "unknown error"));
        }
        out.text += " script: " + s.sha1 + ", on @user_script.";
    }
    lua_settop(lua_, 0);
    memory_.restore_if_large();
}

/// Converts a value of Lua to a reply, as Redis does: an array ends with its first nil,
/// and a number loses its fraction.
void script_engine::convert(int index, redis_reply& out, int depth) {
    if (depth == 0) out.elements.clear();
    switch (lua_type(lua_, index)) {
        case LUA_TSTRING: {
            std::size_t size = 0;
            const char* text = lua_tolstring(lua_, index, &size);
            return out.set(kind::text, {text, size});
        }
        case LUA_TNUMBER:
            return out.set_number(static_cast<std::int64_t>(lua_tonumber(lua_, index)));
        case LUA_TBOOLEAN:
            if (lua_toboolean(lua_, index)) return out.set_number(1);
            out.type = kind::nil;
            return;
        case LUA_TTABLE:
            break;
        default:
            out.type = kind::nil;
            return;
    }
    for (const auto& [field, type] : {std::pair{"err", kind::error}, std::pair{"ok", kind::status}}) {
        lua_pushstring(lua_, field);
        lua_rawget(lua_, index);
        if (lua_isstring(lua_, -1)) {
            std::size_t size = 0;
            const char* text = lua_tolstring(lua_, -1, &size);
            out.set(type, {text, size});
            lua_pop(lua_, 1);
            return;
        }
        lua_pop(lua_, 1);
    }
    out.type = kind::array;
    for (int i = 1;; ++i) {
        lua_rawgeti(lua_, index, i);
        if (lua_isnil(lua_, -1)) break;
        convert(lua_gettop(lua_), out.elements.emplace_back(), depth + 1);
        lua_pop(lua_, 1);
    }
    lua_pop(lua_, 1);
}

/// Converts a reply to a value of Lua, as Redis does: nil becomes false.
void script_engine::push(const redis_reply& reply) {
    switch (reply.type) {
        case kind::nil:
            return lua_pushboolean(lua_, 0);
        case kind::integer:
            return lua_pushnumber(lua_, static_cast<lua_Number>(reply.number));
        case kind::text:
            lua_pushlstring(lua_, reply.text.data(), reply.text.size());
            return;
        case kind::status:
            return put_field(lua_, "ok", reply.text);
        case kind::error:
            return put_field(lua_, "err", reply.text);
        case kind::array:
            lua_createtable(lua_, static_cast<int>(reply.elements.size()), 0);
            for (std::size_t i = 0; i < reply.elements.size(); ++i) {
                push(reply.elements[i]);
                lua_rawseti(lua_, -2, static_cast<int>(i) + 1);
            }
            return;
    }
}

int script_engine::call_command(lua_State* lua, bool raises) {
    const int count = lua_gettop(lua);
    bool valid = count > 0;
    words_.resize(static_cast<std::size_t>(count));
    numbers_.resize(std::max(numbers_.size(), words_.size()));
    for (int i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (lua_type(lua, i + 1) == LUA_TNUMBER) {
            char digits[32];
            const lua_Number number = lua_tonumber(lua, i + 1);
            // As %.17g does, which is slow.
            const bool is_integer = std::abs(number) < 1e15 && number == std::floor(number);
            const auto size =
                is_integer
                    ? std::to_chars(digits, digits + sizeof digits, static_cast<std::int64_t>(number)).ptr - digits
                    : std::snprintf(digits, sizeof digits, "%.17g", number);
            numbers_[at].assign(digits, static_cast<std::size_t>(size));
            words_[at] = numbers_[at];
        } else if (lua_type(lua, i + 1) == LUA_TSTRING) {
            std::size_t size = 0;
            const char* text = lua_tolstring(lua, i + 1, &size);
            words_[at] = {text, size};
        } else {
            valid = false;
        }
    }
    if (valid) {
        server_->call(words_, answer_);
    } else {
        answer_.set(kind::error, count == 0 ? "ERR Please specify at least one argument for this redis.call() call"
                                            : "ERR Lua redis lib command arguments must be strings or integers");
    }
    push(answer_);
    // Redis appends what is known of the place; the differential test compares only what is before it.
    if (raises && answer_.is_error()) return lua_error(lua);
    return 1;
}

int script_engine::call_command(lua_State* lua) {
    auto* engine = static_cast<script_engine*>(lua_touserdata(lua, lua_upvalueindex(1)));
    return engine->call_command(lua, true);
}

int script_engine::call_command_protected(lua_State* lua) {
    auto* engine = static_cast<script_engine*>(lua_touserdata(lua, lua_upvalueindex(1)));
    return engine->call_command(lua, false);
}

int script_engine::make_error(lua_State* lua) {
    std::size_t size = 0;
    const char* text = luaL_checklstring(lua, 1, &size);
    put_field(lua, "err", std::string_view(text, size));
    return 1;
}

int script_engine::make_sha1(lua_State* lua) {
    std::size_t size = 0;
    const char* text = luaL_checklstring(lua, 1, &size);
    const std::string digest = sha1_of(std::string_view(text, size));
    lua_pushlstring(lua, digest.data(), digest.size());
    return 1;
}

int script_engine::make_status(lua_State* lua) {
    std::size_t size = 0;
    const char* text = luaL_checklstring(lua, 1, &size);
    put_field(lua, "ok", std::string_view(text, size));
    return 1;
}

}  // namespace sim
