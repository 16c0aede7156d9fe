# ggml for a machine that is not known when it is built: libggml-base.so, and of the CPU backend one module per
# instruction-set level, libggml-cpu-LEVEL.so, of which the engine loads the best that the processor can run
# (src/backbone/cpu_variant.cpp). Made from the sources, options and definitions of ggml's own static targets.
include(CheckCXXCompilerFlag)

set(GGML_SOURCE ${LLAMA}/ggml/src)
set(cpu_modules "")
set(cpu_levels "")

# Compiled from the static target's objects, which are position-independent; exports what ggml.map lists.
function(add_shared_base)
    add_library(syrinx-ggml-base SHARED $<TARGET_OBJECTS:ggml-base>)
    set_target_properties(syrinx-ggml-base PROPERTIES OUTPUT_NAME ggml-base LINKER_LANGUAGE CXX
        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ggml-base.map)
    target_include_directories(syrinx-ggml-base INTERFACE ${GGML_SOURCE} ${LLAMA}/ggml/include)
    target_link_options(syrinx-ggml-base PRIVATE -Wl,-s -Wl,--no-undefined -Wl,-Bsymbolic-functions
        -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/ggml-base.map)
    target_link_libraries(syrinx-ggml-base PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
endfunction()

# ggml's registry knows the linked-in CPU backend by a definition; here there is none.
function(forget_static_cpu)
    foreach(property COMPILE_DEFINITIONS INTERFACE_COMPILE_DEFINITIONS LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
        get_target_property(values ggml ${property})
        list(REMOVE_ITEM values GGML_USE_CPU ggml-cpu)
        set_target_properties(ggml PROPERTIES ${property} "${values}")
    endforeach()
    target_compile_definitions(ggml PUBLIC GGML_BACKEND_DL)
endfunction()

# One module. FLAGS: the compiler's; FEATURES: what ggml's scoring asks the processor for.
# The scoring is compiled without FLAGS, twice: as the module's ggml_backend_score, and under another name into
# syrinx-cpu-levels, so that the engine judges a module before it loads any of its code.
function(add_cpu_level name)
    cmake_parse_arguments(LEVEL "" "" "FLAGS;FEATURES" ${ARGN})
    list(LENGTH cpu_levels index)
    set(module ggml-cpu-${name})
    get_target_property(sources ggml-cpu SOURCES)
    set(absolute "")
    foreach(source IN LISTS sources)
        get_filename_component(source ${source} ABSOLUTE BASE_DIR ${GGML_SOURCE})
        list(APPEND absolute ${source})
    endforeach()
    add_library(${module} SHARED ${absolute})
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES COMPILE_FEATURES)
        get_target_property(values ggml-cpu ${property})
        set_target_properties(${module} PROPERTIES ${property} "${values}")
    endforeach()
    get_directory_property(definitions DIRECTORY ${GGML_SOURCE} COMPILE_DEFINITIONS)
    set(dynamic GGML_BACKEND_DL GGML_BACKEND_BUILD GGML_BACKEND_SHARED GGML_SHARED)
    target_compile_definitions(${module} PRIVATE ${definitions} ${dynamic} ${LEVEL_FEATURES})
    target_compile_options(${module} PRIVATE ${LEVEL_FLAGS} -fvisibility=hidden)
    target_link_options(${module} PRIVATE -Wl,-s -Wl,--no-undefined
        -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/ggml-cpu.map)
    target_link_libraries(${module} PRIVATE syrinx-ggml-base Threads::Threads ${CMAKE_DL_LIBS} m)
    set_target_properties(${module} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8
        LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ggml-cpu.map)

    set(scoring ${GGML_SOURCE}/ggml-cpu/arch/${GGML_ARCH_FOLDER}/cpu-feats.cpp)
    foreach(kind module engine)
        add_library(${module}-score-${kind} OBJECT ${scoring})
        target_include_directories(${module}-score-${kind} PRIVATE ${GGML_SOURCE} ${LLAMA}/ggml/include)
        target_compile_definitions(${module}-score-${kind} PRIVATE GGML_BACKEND_DL ${LEVEL_FEATURES})
    endforeach()
    target_compile_definitions(${module}-score-module PRIVATE ${dynamic})
    target_compile_definitions(${module}-score-engine PRIVATE ggml_backend_score=ggml_score_level_${index})
    target_sources(${module} PRIVATE $<TARGET_OBJECTS:${module}-score-module>)
    target_sources(syrinx-cpu-levels PRIVATE $<TARGET_OBJECTS:${module}-score-engine>)

    set(cpu_modules ${cpu_modules} ${module} PARENT_SCOPE)
    set(cpu_levels ${cpu_levels} "LEVEL(\"${name}\", ggml_score_level_${index})" PARENT_SCOPE)
endfunction()

add_library(syrinx-cpu-levels STATIC)
add_shared_base()
forget_static_cpu()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    # Every level's FLAGS enable what its FEATURES are asked for and no more than comes with the architecture's version:
    # with -march=armv8.6-a the compiler could use bf16, which nothing asks for.
    set(GGML_ARCH_FOLDER arm)
    set(features GGML_USE_DOTPROD GGML_USE_FP16_VECTOR_ARITHMETIC)
    add_cpu_level(armv8.0 FLAGS -march=armv8-a)
    add_cpu_level(armv8.2-dotprod FLAGS -march=armv8.2-a+fp16+dotprod FEATURES ${features})
    list(APPEND features GGML_USE_MATMUL_INT8)
    add_cpu_level(armv8.2-i8mm FLAGS -march=armv8.2-a+fp16+dotprod+i8mm FEATURES ${features})
    list(APPEND features GGML_USE_SVE GGML_USE_SVE2)
    check_cxx_compiler_flag(-march=armv8.2-a+fp16+dotprod+i8mm+sve2 SYRINX_COMPILER_HAS_SVE2)
    if(SYRINX_COMPILER_HAS_SVE2)
        add_cpu_level(armv9.0-sve2 FLAGS -march=armv8.2-a+fp16+dotprod+i8mm+sve2 FEATURES ${features})
    endif()
    list(APPEND features GGML_USE_SME)
    check_cxx_compiler_flag(-march=armv9.2-a+fp16+dotprod+i8mm+sve2+sme SYRINX_COMPILER_HAS_SME)
    if(SYRINX_COMPILER_HAS_SME)
        add_cpu_level(armv9.2-sme FLAGS -march=armv9.2-a+fp16+dotprod+i8mm+sve2+sme FEATURES ${features})
    endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(GGML_ARCH_FOLDER x86)
    add_cpu_level(x86-64-v2 FLAGS -msse4.2 -mpopcnt FEATURES GGML_SSE42)  # what Android's x86_64 ABI promises
    add_cpu_level(x86-64-v3 FLAGS -msse4.2 -mpopcnt -mf16c -mfma -mbmi2 -mavx -mavx2
        FEATURES GGML_SSE42 GGML_F16C GGML_FMA GGML_BMI2 GGML_AVX GGML_AVX2)
else()
    message(FATAL_ERROR "no CPU levels are known for ${CMAKE_SYSTEM_PROCESSOR}")
endif()
