// Data structures that cereal serializes, for client_t::mem_protect.
#ifndef TIERFLOW_VELOC_CEREAL_HPP
#define TIERFLOW_VELOC_CEREAL_HPP

#include <cereal/archives/binary.hpp>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace cereal {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
    return [&data](std::ostream &out) { ::cereal::BinaryOutputArchive{out}(data); };
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
    return [&data](std::istream &in) {
        try {
            ::cereal::BinaryInputArchive{in}(data);
            return true;
        } catch (const std::exception &) {
            return false;
        }
    };
}

} // namespace cereal
} // namespace veloc

#endif
