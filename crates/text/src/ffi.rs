//! The C ABI; `src/text/ffi.h` is its other side and documents it.

use crate::failure::{caught, Failure, Outcome};
use crate::folder::{self, Class, Folder, Given};
use crate::gguf;
use crate::sentencepiece;
use crate::template::{Clock, Template};
use crate::tokenizer::{Kind, Tokenizer};
use std::mem::ManuallyDrop;
use std::slice;
use tokenizers::AddedToken;

/// A vector handed to the caller.
#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(vector: Vec<T>) -> Self {
        let mut kept = ManuallyDrop::new(vector);
        Self { data: kept.as_mut_ptr(), size: kept.len(), capacity: kept.capacity() }
    }
}

impl<T> Buffer<T> {
    /// # Safety
    /// As made by `from`, and not freed before.
    unsafe fn free(&mut self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
            self.data = std::ptr::null_mut();
        }
    }
}

/// Bytes of the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    /// # Safety
    /// `data` points to `size` bytes for the time of the call.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            slice::from_raw_parts(self.data, self.size)
        }
    }

    unsafe fn text<'a>(self, what: &str) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes()).map_err(|_| Failure::corrupt(format!("{what} is not UTF-8")))
    }
}

/// An array of the caller.
#[repr(C)]
pub struct Array<T> {
    data: *const T,
    size: usize,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Array<T> {}

impl<T> Array<T> {
    unsafe fn items<'a>(self) -> &'a [T] {
        if self.size == 0 {
            &[]
        } else {
            slice::from_raw_parts(self.data, self.size)
        }
    }
}

impl Array<View> {
    unsafe fn texts<'a>(self, what: &str) -> Outcome<Vec<&'a str>> {
        self.items().iter().map(|view| view.text(what)).collect()
    }
}

#[repr(C)]
pub struct AddedTokenView {
    content: View,
    id: u32,
    flagged: bool,
    special: bool,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
}

impl AddedTokenView {
    unsafe fn token(&self) -> Outcome<AddedToken> {
        Ok(AddedToken::from(self.content.text("an added token")?, self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized))
    }

    unsafe fn given(&self) -> Outcome<Given> {
        if self.flagged {
            return Ok(Given::Flagged(self.token()?));
        }
        Ok(Given::Plain(self.content.text("a special token")?.to_string()))
    }
}

#[repr(C)]
pub struct NamedTokenView {
    name: View,
    none: bool,
    token: AddedTokenView,
}

#[repr(C)]
pub struct FolderView {
    class: i32,
    has_prefix_space: bool,
    prefix_space: bool,
    has_legacy: bool,
    legacy: bool,
    add_bos: bool,
    add_eos: bool,
    has_decoder: bool,
    added: Array<AddedTokenView>,
    named: Array<NamedTokenView>,
    extra: Array<AddedTokenView>,
}

impl FolderView {
    unsafe fn folder(&self) -> Outcome<Folder> {
        let added = |view: &AddedTokenView| Ok((view.id, view.token()?));
        let named = |view: &NamedTokenView| {
            let name = view.name.text("a name")?.to_string();
            Ok((name, if view.none { None } else { Some(view.token.given()?) }))
        };
        Ok(Folder {
            class: match self.class {
                1 => Class::Llama,
                2 => Class::Gemma,
                3 => Class::Qwen2,
                4 => Class::Gpt2,
                _ => Class::AsWritten,
            },
            prefix_space: self.has_prefix_space.then_some(self.prefix_space),
            legacy: self.has_legacy.then_some(self.legacy),
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            has_decoder: self.has_decoder,
            added: self.added.items().iter().map(added).collect::<Outcome<_>>()?,
            named: self.named.items().iter().map(named).collect::<Outcome<_>>()?,
            extra: self.extra.items().iter().map(|view| view.given()).collect::<Outcome<_>>()?,
        })
    }
}

#[repr(C)]
pub struct GgufView {
    sentence_piece: bool,
    add_space_prefix: bool,
    has_unknown: bool,
    unknown: u32,
    pre: View,
    tokens: Array<View>,
    types: Array<i32>,
    scores: Array<f32>,
    merges: Array<View>,
}

#[repr(C)]
pub struct Start {
    strip: u32,
    strip_count: u32,
    join_with_space: bool,
}

/// Runs one entry: 0, or the status with its message in `error`.
fn guard(error: *mut Buffer<u8>, entry: impl FnOnce() -> Outcome<()>) -> i32 {
    let Err(failure) = caught(entry) else { return 0 };
    // SAFETY: the caller passes a buffer to write to.
    unsafe { error.write(failure.message.into_bytes().into()) };
    failure.status as i32
}

/// # Safety
/// A buffer that this library filled, or a zeroed one.
#[no_mangle]
pub unsafe extern "C" fn pd_text_bytes_free(buffer: *mut Buffer<u8>) {
    (*buffer).free();
}

/// # Safety
/// A buffer that this library filled, or a zeroed one.
#[no_mangle]
pub unsafe extern "C" fn pd_text_ids_free(buffer: *mut Buffer<u32>) {
    (*buffer).free();
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_from_json(
    json: View,
    folder: *const FolderView,
    out: *mut *mut Tokenizer,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let tokenizer = folder::from_json(json.bytes(), &(*folder).folder()?)?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_from_sentencepiece(
    model: View,
    folder: *const FolderView,
    out: *mut *mut Tokenizer,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let tokenizer = sentencepiece::from_model(model.bytes(), (*folder).folder()?)?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_from_gguf(
    view: *const GgufView,
    out: *mut *mut Tokenizer,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let view = &*view;
        let source = gguf::Source {
            tokens: view.tokens.texts("tokenizer.ggml.tokens")?,
            types: view.types.items(),
            scores: view.scores.items(),
            merges: view.merges.texts("tokenizer.ggml.merges")?,
            pre: view.pre.text("tokenizer.ggml.pre")?,
            unknown: view.has_unknown.then_some(view.unknown),
            add_space_prefix: view.add_space_prefix,
        };
        let tokenizer =
            if view.sentence_piece { gguf::sentence_piece(&source)? } else { gguf::byte_level(&source)? };
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// A handle from this library, or null; not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_affixes(
    tokenizer: *const Tokenizer,
    prefix: *mut Buffer<u32>,
    suffix: *mut Buffer<u32>,
) {
    prefix.write((*tokenizer).prefix.clone().into());
    suffix.write((*tokenizer).suffix.clone().into());
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: View,
    parse_special: bool,
    out: *mut Buffer<u32>,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        out.write((*tokenizer).encode(text.bytes(), parse_special)?.into());
        Ok(())
    })
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: Array<u32>,
    skip_special: bool,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        out.write((*tokenizer).decode(ids.items(), skip_special)?.into_bytes().into());
        Ok(())
    })
}

/// # Safety
/// A handle from this library.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_size(tokenizer: *const Tokenizer) -> u32 {
    (*tokenizer).size()
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_id(
    tokenizer: *const Tokenizer,
    token: View,
    id: *mut u32,
) -> bool {
    let found = token.text("a token").ok().and_then(|token| (*tokenizer).id_of(token));
    if let Some(found) = found {
        id.write(found);
    }
    found.is_some()
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_token(
    tokenizer: *const Tokenizer,
    id: u32,
    spelling: *mut Buffer<u8>,
    kind: *mut Kind,
) -> bool {
    let Some((token, found)) = (*tokenizer).token(id) else { return false };
    spelling.write(token.into_bytes().into());
    kind.write(found);
    true
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_piece(
    tokenizer: *const Tokenizer,
    id: u32,
    skip_special: bool,
    first: bool,
    out: *mut Buffer<u8>,
) -> bool {
    match (*tokenizer).token(id) {
        Some((token, kind)) if !(kind == Kind::Special && skip_special) => {
            out.write((*tokenizer).piece(&token, first).into());
            true
        }
        _ => false,
    }
}

/// # Safety
/// A handle from this library.
#[no_mangle]
pub unsafe extern "C" fn pd_text_tokenizer_start(tokenizer: *const Tokenizer) -> Start {
    let start = (*tokenizer).start();
    Start {
        strip: start.strip as u32,
        strip_count: start.strip_count,
        join_with_space: start.join_with_space,
    }
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_template_new(
    name: View,
    source: View,
    out: *mut *mut Template,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        let name = String::from_utf8_lossy(name.bytes()); // a path may have any bytes
        let template = Template::new(&name, source.text("the chat template")?)?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

/// # Safety
/// A handle from this library, or null; not used afterwards.
#[no_mangle]
pub unsafe extern "C" fn pd_text_template_free(template: *mut Template) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

/// # Safety
/// Pointers as ffi.h asks for.
#[no_mangle]
pub unsafe extern "C" fn pd_text_template_render(
    template: *const Template,
    arguments: View,
    clock: Clock,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    guard(error, || {
        out.write((*template).render(arguments.bytes(), clock)?.into_bytes().into());
        Ok(())
    })
}
