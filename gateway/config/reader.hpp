#pragma once

#include <yaml-cpp/yaml.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::config_reader {

/// Collects faults, at most one a path: a value that is wrong in itself is not also reported as unfit for its
/// neighbours.
class fault_list {
  public:
    void add(const std::string& path, const std::string& what);
    /// True if `path` or something that contains it is faulty already.
    bool covers(std::string_view path) const;
    bool empty() const { return faults_.empty(); }
    const std::vector<std::string>& all() const { return faults_; }

  private:
    std::vector<std::string> faults_;
    std::set<std::string, std::less<>> paths_;
};

/// What a value of the file is read by; `path` names it in faults.
using read_value = std::function<void(const YAML::Node& node, const std::string& path, fault_list& faults)>;

/// One row of a section's table.
struct field {
    std::string key;
    read_value read;
    bool required = false;
};

/// A mapping with these keys and no others. An unknown key is a fault that suggests the nearest known one; so is a key
/// that stands twice. Nothing at all (`http:`) is an empty mapping.
read_value mapping(std::vector<field> fields);

/// A list of anything; `item` is called once an entry with its index and path `…[i]`.
read_value list(
    std::function<void(std::size_t index, const YAML::Node& node, const std::string& path, fault_list& faults)> item);

/// A string that is not empty. The value never shows in a fault: it may be a secret.
read_value text(std::string& target);

read_value boolean(bool& target);

/// The value of `node` as an integer between the two; false and a fault otherwise.
bool read_integer(const YAML::Node& node, const std::string& path, fault_list& faults, std::int64_t least,
                  std::int64_t most, std::int64_t& value);

template <std::integral T>
read_value integer(T& target, std::int64_t least, std::int64_t most) {
    return [&target, least, most](const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::int64_t value = 0;
        if (read_integer(node, path, faults, least, most, value)) target = static_cast<T>(value);
    };
}

/// An integer of milliseconds; the bounds are of the same unit.
read_value duration(std::chrono::milliseconds& target, std::chrono::milliseconds least, std::chrono::milliseconds most);

/// One of a few words.
template <class T>
struct word {
    std::string name;
    T value;
};

/// Says which words there are, and which of them is nearest to what was written.
std::string not_one_of(std::string_view written, const std::vector<std::string>& names);

/// The text of a scalar, or a fault.
bool read_scalar(const YAML::Node& node, const std::string& path, fault_list& faults, std::string& value);

template <class T>
read_value one_of(T& target, std::vector<word<T>> words) {
    return [&target, words = std::move(words)](const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::string written;
        if (!read_scalar(node, path, faults, written)) return;
        std::vector<std::string> names;
        for (const auto& each : words) {
            if (each.name == written) {
                target = each.value;
                return;
            }
            names.push_back(each.name);
        }
        faults.add(path, not_one_of(written, names));
    };
}

}  // namespace fencegate::config_reader
