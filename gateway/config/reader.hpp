#pragma once

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::config_reader {

/// Collects faults, at most one for each path: a value that is wrong in itself is not also reported as inconsistent
/// with another.
class fault_list {
  public:
    void add(const std::string& path, const std::string& detail);
    /// Adds a warning if every user of this machine may access `file`, which has a secret; one for each file.
    void check_permissions(const std::string& path, const std::filesystem::path& file);
    /// Returns whether `path` or a path that contains it has a fault already. A list does not contain its entries: that
    /// it has too many or too few is no fault of one of them.
    bool covers(std::string_view path) const;
    bool empty() const { return faults_.empty(); }
    const std::vector<std::string>& all() const { return faults_; }
    /// What is no fault and has to be mended nevertheless, each "path: what it is".
    const std::vector<std::string>& warnings() const { return warnings_; }

  private:
    std::vector<std::string> faults_;
    std::vector<std::string> warnings_;
    std::set<std::string, std::less<>> paths_;
};

struct field;

/// Reads one value of the file into its target; `path` names it in faults. Compares and copies targets of readers that
/// were made alike for two configurations.
class read_value {
  public:
    using function = std::function<void(const YAML::Node& node, const std::string& path, fault_list& faults)>;

    /// A reader whose target is not compared.
    template <class Read>
    requires std::constructible_from<function, Read> read_value(Read read) : read_(std::move(read)) {}
    template <std::equality_comparable T>
    read_value(T& target, function read) : read_(std::move(read)), target_(&target) {
        equals_ = [](const void* a, const void* b) { return *static_cast<const T*>(a) == *static_cast<const T*>(b); };
        assign_ = [](void* to, const void* from) { *static_cast<T*>(to) = *static_cast<const T*>(from); };
    }

    void operator()(const YAML::Node& node, const std::string& path, fault_list& faults) const {
        read_(node, path, faults);
    }
    bool differs(const read_value& other) const { return equals_ != nullptr && !equals_(target_, other.target_); }
    void assign(const read_value& other) const { assign_(target_, other.target_); }
    /// Calls `visit` for each key of a mapping, and of mappings in it, with its path and the same key of `other`.
    void for_each_key(const read_value& other,
                      const std::function<void(const std::string&, const field&, const field&)>& visit,
                      const std::string& path = {}) const;

  private:
    friend read_value mapping(std::vector<field> fields);

    function read_;
    void* target_ = nullptr;
    bool (*equals_)(const void*, const void*) = nullptr;
    void (*assign_)(void*, const void*) = nullptr;
    std::shared_ptr<const std::vector<field>> fields_;  ///< Of a mapping.
};

/// One row of a section's table.
struct field {
    std::string key;
    read_value read;
    bool required = false;
    bool is_reloadable = false;  ///< A running gateway can change the value.
};

/// Returns the row of an optional key whose value a running gateway can change.
field reloadable(std::string key, read_value read);

/// Returns a reader for a mapping with these keys and no others. An unknown key is a fault, which suggests the nearest
/// known key; a repeated key is a fault too. No value (`http:`) is an empty mapping.
read_value mapping(std::vector<field> fields);

/// Returns a reader for a list, which calls `item` for each entry with its index and path `…[i]`.
read_value list(
    std::function<void(std::size_t index, const YAML::Node& node, const std::string& path, fault_list& faults)> item);

/// Returns a reader for a string that is not empty. No fault contains the value, which may be a secret.
read_value text(std::string& target);

/// Returns a reader for a secret in the file that a value names, whose permissions it checks. Relative names start at
/// `folder`, the configuration's, so that they do not depend on where the gateway is started.
read_value secret_file(std::string& target, const std::filesystem::path& folder);

/// A file that a value names. A relative name starts at the configuration's folder.
struct named_file {
    std::string name;
    std::string text;
};

/// Returns a reader for the name of a file, which also reads the file.
read_value file(named_file& target, const std::filesystem::path& folder, std::size_t bytes_max);

read_value boolean(bool& target);

/// Reads an integer from `least` to `most` into `value`. Out: false after it added a fault.
bool read_integer(const YAML::Node& node, const std::string& path, fault_list& faults, std::int64_t least,
                  std::int64_t most, std::int64_t& value);

template <std::integral T>
read_value integer(T& target, std::int64_t least, std::int64_t most) {
    return {target, [&target, least, most](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::int64_t value = 0;
                if (read_integer(node, path, faults, least, most, value)) target = static_cast<T>(value);
            }};
}

/// Returns a reader for an integer of milliseconds.
read_value duration(std::chrono::milliseconds& target, std::chrono::milliseconds least, std::chrono::milliseconds most);

/// A name in the file and the value that it means.
template <class T>
struct named_value {
    std::string name;
    T value;
};

/// Returns the fault for an unknown name: the known names and the nearest of them.
std::string describe_unknown_value(std::string_view written, const std::vector<std::string>& names);

/// Reads the text of a scalar into `value`. Out: false after it added a fault.
bool read_scalar(const YAML::Node& node, const std::string& path, fault_list& faults, std::string& value);

template <class T>
read_value choice(T& target, std::vector<named_value<T>> values) {
    return {target,
            [&target, values = std::move(values)](const YAML::Node& node, const std::string& path, fault_list& faults) {
                std::string written;
                if (!read_scalar(node, path, faults, written)) return;
                std::vector<std::string> names;
                for (const auto& each : values) {
                    if (each.name == written) {
                        target = each.value;
                        return;
                    }
                    names.push_back(each.name);
                }
                faults.add(path, describe_unknown_value(written, names));
            }};
}

}  // namespace fencegate::config_reader
