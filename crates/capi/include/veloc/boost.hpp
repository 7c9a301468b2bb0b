// Data structures that Boost.Serialization serializes, for client_t::mem_protect.
#ifndef TIERFLOW_VELOC_BOOST_HPP
#define TIERFLOW_VELOC_BOOST_HPP

#include <boost/archive/binary_iarchive.hpp>
#include <boost/archive/binary_oarchive.hpp>
#include <functional>
#include <istream>
#include <ostream>

namespace veloc {
namespace boost {

template <typename T> std::function<void(std::ostream &)> serializer(T &data) {
    return [&data](std::ostream &out) { ::boost::archive::binary_oarchive{out} << data; };
}

template <typename T> std::function<bool(std::istream &)> deserializer(T &data) {
    return [&data](std::istream &in) {
        try {
            ::boost::archive::binary_iarchive{in} >> data;
            return true;
        } catch (const std::exception &) {
            return false;
        }
    };
}

} // namespace boost
} // namespace veloc

#endif
