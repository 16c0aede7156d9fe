# How libraries and programs for another machine (a phone, arm64 Linux) are compiled and linked; included by both
# projects. Nothing here is for the host's build.
#  * 16 KB pages: Android devices that have them load nothing that is aligned to less.
#  * Sections of their own and --gc-sections: what nobody calls is not shipped.
#  * The C++ runtime goes in statically and stays hidden: a phone has none, another machine another one. (Android's
#    own toolchain file does it by ANDROID_STL=c++_static.)
#  * No RPATH: an app finds its libraries in its own folder, the command line by LD_LIBRARY_PATH.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,-z,max-page-size=16384 -Wl,--gc-sections -Wl,--exclude-libs,ALL)
if(NOT ANDROID)
    add_link_options(-static-libgcc $<$<LINK_LANGUAGE:CXX>:-static-libstdc++>)
endif()
set(CMAKE_SKIP_RPATH ON)
